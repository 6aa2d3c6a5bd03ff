"""Read a table's Delta log itself: the `txn` lines, which delta-rs gives one at a time only.

In:   a lake, a table and the version of a handle
Out:  `Commit` (one log file), `TxnLog` (every txn version as of a table version, kept up to date)
Refuses: an empty or torn commit or checkpoint, with BadState; delta-rs opens a 0-byte newest commit
      silently as an empty version
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from types import MappingProxyType
from typing import Any
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from afterbay.lakehouse.lake import Lake
from afterbay.schemas.errors import BadState

LOG = "_delta_log"
COMMIT_FILE = re.compile(r"\d{20}\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(\.\d{10}\.\d{10})?\.parquet")


class _Add(msgspec.Struct, frozen=True):
    path: str


class _Txn(msgspec.Struct, frozen=True, rename="camel"):
    app_id: str
    version: int


class _Line(msgspec.Struct, frozen=True, rename="camel"):
    add: _Add | None = None
    txn: _Txn | None = None
    meta_data: dict[str, Any] | None = None


_decoder = msgspec.json.Decoder(_Line)


@dataclass(frozen=True, slots=True)
class Commit:
    """One file of the log. Made here, read by the ledger and by whoever makes it durable."""

    version: int
    added: tuple[str, ...]
    """Data files, relative to the table's folder."""
    txns: Mapping[str, int]
    """Version by app id."""
    metadata: bool
    """True if it changes schema or configuration."""


def commit_name(version: int) -> str:
    """File of one commit, relative to the table's folder."""
    return f"{LOG}/{version:020}.json"


def read_commit(lake: Lake, table: str, version: int) -> Commit | None:
    """One commit; None if its file is gone (cleaned up after a checkpoint)."""
    data = lake.read(table, commit_name(version))
    if data is None:
        return None
    try:
        lines = [_decoder.decode(line) for line in data.splitlines()]
    except (msgspec.DecodeError, msgspec.ValidationError):
        lines = []
    if not lines:
        raise BadState(
            f"table {table}: commit {version} is empty or torn ({len(data)} bytes, whole JSON "
            f"lines expected); move {commit_name(version)} out of the folder and start again, "
            "its events are read from Kafka once more"
        )
    return Commit(
        version,
        tuple(unquote(line.add.path) for line in lines if line.add is not None),
        {line.txn.app_id: line.txn.version for line in lines if line.txn is not None},
        any(line.meta_data is not None for line in lines),
    )


class TxnLog:
    """Every txn version of one table, as of `version`. One owner, one thread."""

    def __init__(self, lake: Lake, table: str) -> None:
        self._lake = lake
        self._table = table
        self._txns: dict[str, int] = {}
        self.version = -1
        """Table version the txns are as of; -1 before the first `advance`."""
        self.metadata_changed = False
        """True if the last `advance` saw a commit that changes schema or configuration."""

    @property
    def txns(self) -> Mapping[str, int]:
        """Version by app id."""
        return MappingProxyType(self._txns)

    def advance(self, to: int) -> Mapping[str, int]:
        """Bring the txns to table version `to`, reading only commits that are newer than `version`.

        If a commit file is gone, or nothing was read yet, starts at the newest checkpoint.
        """
        self.metadata_changed = False
        if self.version < 0 or to < self.version or not self._apply(self.version + 1, to):
            self._reload(to)
        return self.txns

    def _apply(self, first: int, last: int) -> bool:
        for version in range(first, last + 1):
            commit = read_commit(self._lake, self._table, version)
            if commit is None:
                return False
            self._txns.update(commit.txns)
            self.metadata_changed |= commit.metadata
            self.version = version
        return True

    def _reload(self, to: int) -> None:
        start, self._txns = read_checkpoint(self._lake, self._table, to)
        self.version = start
        self.metadata_changed = True
        if not self._apply(start + 1, to):
            raise BadState(
                f"table {self._table}: commit {self.version + 1} is missing between checkpoint "
                f"{start} and version {to}; restore the log file from a backup"
            )


def read_checkpoint(lake: Lake, table: str, to: int) -> tuple[int, dict[str, int]]:
    """Version and txns of the newest checkpoint at or below `to`; (-1, {}) if there is none.

    BadState if it is torn.
    """
    parts: dict[int, list[str]] = {}
    for name in lake.list(table, LOG):
        found = _CHECKPOINT.fullmatch(name)
        if found is not None and int(found[1]) <= to:
            parts.setdefault(int(found[1]), []).append(name)
    if not parts:
        return -1, {}
    newest = max(parts)
    txns: dict[str, int] = {}
    for name in parts[newest]:
        txns.update(_txns_of(lake, table, name))
    return newest, txns


def _txns_of(lake: Lake, table: str, name: str) -> dict[str, int]:
    data = lake.read(table, f"{LOG}/{name}") or b""
    try:
        column = pq.read_table(BytesIO(data), columns=["txn"]).column("txn")
    except (pa.ArrowInvalid, OSError, KeyError):
        raise BadState(
            f"table {table}: checkpoint {name} is torn ({len(data)} bytes); delete it and "
            f"{LOG}/_last_checkpoint, the commits before it are kept and read instead"
        ) from None
    rows = pc.drop_null(column).to_pylist()
    return {row["appId"]: row["version"] for row in rows if row["appId"] is not None}
