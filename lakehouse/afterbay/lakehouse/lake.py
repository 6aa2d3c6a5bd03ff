"""Where the tables lie: a folder on a local disk or an address in an object store.

In:   the root and, for an object store, its options
Out:  the address of each table, small files of a table by relative path
Never: opens a table; `tables` does
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.fs as pa_fs
from deltalake._internal import DeltaFileSystemHandler
from deltalake.fs import DeltaStorageHandler


@dataclass(frozen=True, slots=True)
class Lake:
    """Address of all tables. Made by entry points, read by everything in this folder."""

    root: str
    """Local folder (absolute or not, or `file://`), or `s3://bucket/prefix`."""
    storage_options: Mapping[str, str] = field(default_factory=dict)
    """Options of the object store, as delta-rs names them; empty for a local disk."""

    @property
    def folder(self) -> Path | None:
        """The root as a local folder; None for an object store."""
        if self.root.startswith("file://"):
            return Path(self.root.removeprefix("file://"))
        return None if "://" in self.root else Path(self.root).absolute()

    @property
    def options(self) -> dict[str, str]:
        """Options in the mutable form that delta-rs asks for."""
        return dict(self.storage_options)

    def uri(self, table: str) -> str:
        """Address of `table`, as delta-rs takes it."""
        folder = self.folder
        return f"{self.root.rstrip('/')}/{table}" if folder is None else str(folder / table)

    def path(self, table: str) -> Path | None:
        """Folder of `table` on a local disk; None for an object store."""
        folder = self.folder
        return None if folder is None else folder / table

    def filesystem(self, table: str) -> pa_fs.FileSystem:
        """The table's folder as an Arrow file system, for paths relative to it."""
        path = self.path(table)
        if path is None:
            return pa_fs.PyFileSystem(DeltaStorageHandler(self.uri(table), self.options))
        return pa_fs.SubTreeFileSystem(str(path), pa_fs.LocalFileSystem())

    def read(self, table: str, relative: str) -> bytes | None:
        """Bytes of one small file of `table`; None if there is no such file."""
        path = self.path(table)
        try:
            if path is not None:
                return (path / relative).read_bytes()
            with self.filesystem(table).open_input_file(relative) as file:
                return bytes(file.read())
        except FileNotFoundError:
            return None

    def write(self, table: str, relative: str, data: bytes) -> None:
        """Put one small file beside `table`; readers see all of it or none."""
        path = self.path(table)
        if path is None:
            # one layer below `filesystem`: deltalake 1.6 cannot take the buffers Arrow writes
            store = DeltaFileSystemHandler(table_uri=self.uri(table), options=self.options)
            stream = store.open_output_stream(relative)
            stream.write(data)
            stream.close()  # type: ignore[attr-defined]  # missing in its stub only
            return
        target = path / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(f".{target.name}.{os.getpid()}")
        draft.write_bytes(data)
        draft.replace(target)

    def list(self, table: str, relative: str) -> list[str]:
        """Names of the files directly in one folder of `table`; none if there is no such folder."""
        path = self.path(table)
        if path is not None:
            folder = path / relative
            return sorted(p.name for p in folder.iterdir()) if folder.is_dir() else []
        selector = pa_fs.FileSelector(relative, allow_not_found=True)
        return sorted(info.base_name for info in self.filesystem(table).get_file_info(selector))
