"""The data files of a table version, and reading some of them.

In:   a handle
Out:  `data_files` (one row per live file, with its statistics), `dataset` over chosen files,
      `whole` over all of them
Never: lists a folder; the log alone says which files a table has
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable

from afterbay.lakehouse import tables
from afterbay.lakehouse.lake import Lake

_FORMAT = ds.ParquetFileFormat()


@dataclass(frozen=True, slots=True)
class DataFile:
    """One live file of a table. Made here, read by readers and maintenance."""

    path: str
    """Relative to the table's folder."""
    size: int
    """Bytes."""
    rows: int
    partition: tuple[tuple[str, str], ...]
    """Label of each partition column."""
    max_offset: int | None
    """Largest `_offset` in it; None if the log does not say."""


def data_files(table: DeltaTable, partition_columns: Iterable[str]) -> list[DataFile]:
    """Every live file of the handle's version."""
    actions = pa.table(table.get_add_actions(flatten=True))
    names = tuple(partition_columns)
    wanted = {f"partition.{n}" for n in names} | {"path", "size_bytes", "num_records"}
    columns = [n for n in actions.column_names if n in wanted or n == "max._offset"]
    return [_file(row, names) for row in actions.select(columns).to_pylist()]


def dataset(lake: Lake, table: str, files: Iterable[DataFile]) -> ds.Dataset:
    """The rows of `files`, with every column that `table` has."""
    schema = tables.arrow_schema(table)
    filesystem = lake.filesystem(table)
    fragments = [
        _FORMAT.make_fragment(
            file.path,
            filesystem=filesystem,
            partition_expression=_labels(file.partition),
            file_size=file.size,
        )
        for file in files
    ]
    return ds.FileSystemDataset(fragments, schema, _FORMAT, filesystem)


def whole(lake: Lake, table: str, handle: DeltaTable) -> ds.Dataset:
    """Every row of the handle's version, pruned by the statistics in the log.

    Over Arrow's own file system: delta-rs's is made of Python objects, which Arrow's threads may
    let go of while the interpreter ends, and abort it.
    """
    found: ds.Dataset = handle.to_pyarrow_dataset(filesystem=lake.filesystem(table))
    return found


def _file(row: Mapping[str, Any], names: tuple[str, ...]) -> DataFile:
    return DataFile(
        path=unquote(row["path"]),
        size=row["size_bytes"],
        rows=row["num_records"],
        partition=tuple((name, row[f"partition.{name}"]) for name in names),
        max_offset=row.get("max._offset"),
    )


def _labels(partition: tuple[tuple[str, str], ...]) -> ds.Expression:
    expression = ds.scalar(True)
    for name, label in partition:
        expression &= ds.field(name) == label
    return expression
