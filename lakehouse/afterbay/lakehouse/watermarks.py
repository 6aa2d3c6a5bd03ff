"""Read what is new in a table since a position: next offsets per input partition, not versions.

In:   a table, the pipeline that writes it, the caller's positions
Out:  `Batch`: rows at or past the positions, and how far the table itself has come
Never: keeps a position; what it remembers is only which files hold nothing new, so compaction,
      restore and restart cost a re-read and never a row
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from afterbay.lakehouse import tables
from afterbay.lakehouse.files import DataFile, data_files, dataset
from afterbay.lakehouse.handle import TableHandle
from afterbay.lakehouse.lake import Lake
from afterbay.lakehouse.positions import Positions, SourcePartition, parse_txn_id
from afterbay.lakehouse.repair import reading

_KEYS = ("_topic", "_topic_id", "_partition")
_PLACE = (*_KEYS, "_offset")


@dataclass(frozen=True, slots=True)
class Batch:
    """What a table holds past some positions. Made here, read by derived tables and sensors."""

    rows: pa.Table
    """The asked columns; in no particular order."""
    next: dict[SourcePartition, int]
    """Next offset of every partition the table knows: the positions after these rows, never behind
    those that were asked for."""
    version: int
    """Table version that was read."""


class OffsetReader:
    """Follows one table by offsets. One owner, one thread."""

    def __init__(self, lake: Lake, table: str, pipeline: str, columns: Sequence[str]) -> None:
        self._lake = lake
        self._table = table
        self._pipeline = pipeline
        self._columns = list(columns)
        self._view = TableHandle(lake, table)
        self._ends: dict[str, dict[SourcePartition, int]] = {}
        """Next offset per partition of each file that was opened, by path."""
        self._spent: set[str] = set()
        """Files that hold nothing at or past `_after`."""
        self._after: dict[SourcePartition, int] = {}

    def read(self, after: Positions) -> Batch:
        """Rows whose `_offset` >= `after` of their partition (0 where absent)."""
        handle = self._view.newest()
        reached = self._reached(after)
        if any(after.get(p, 0) < v for p, v in self._after.items()):
            self._spent.clear()
        self._after = dict(after)
        files = data_files(handle, tables.partition_columns(self._table))
        rows = self._rows(self._holding(files, reached), reached)
        self._forget({file.path for file in files})
        return Batch(rows, reached, handle.version())

    def _positions(self) -> dict[SourcePartition, int]:
        named = {parse_txn_id(name, self._pipeline): v for name, v in self._view.txns.items()}
        return {place: version for place, version in named.items() if place is not None}

    def _reached(self, after: Positions) -> dict[SourcePartition, int]:
        """How far the table has come, as its reader sees it.

        A table that was rewound stands behind its reader for a while, and then takes in again what
        the reader has had: going back with it would be doing that work twice.
        """
        return {place: max(v, after.get(place, 0)) for place, v in self._positions().items()}

    def _holding(self, files: Iterable[DataFile], reached: Positions) -> list[DataFile]:
        """Files that may hold a row at or past the positions."""
        floor = min((self._after.get(p, 0) for p in reached), default=0)
        return [file for file in files if file.path not in self._spent and self._may(file, floor)]

    def _may(self, file: DataFile, floor: int) -> bool:
        ends = self._ends.get(file.path)
        if ends is not None:
            new = any(end > self._after.get(p, 0) for p, end in ends.items())
        else:
            new = file.max_offset is None or file.max_offset >= floor
        if not new:
            self._spent.add(file.path)
        return new

    def _rows(self, files: list[DataFile], reached: Positions) -> pa.Table:
        names = [*self._columns, *(n for n in _PLACE if n not in self._columns)]
        parts = [self._file_rows(file, names) for file in files]
        schema = tables.arrow_schema(self._table)
        empty = pa.schema([schema.field(name) for name in names]).empty_table()
        rows = pa.concat_tables([empty, *parts])
        return _past(rows, self._after, reached).select(self._columns)

    def _file_rows(self, file: DataFile, names: list[str]) -> pa.Table:
        with reading(self._lake, self._table):
            rows = dataset(self._lake, self._table, [file]).to_table(columns=names)
        if file.path not in self._ends:
            spans = rows.group_by(list(_KEYS)).aggregate([("_offset", "max")]).to_pylist()
            self._ends[file.path] = {
                SourcePartition(*(span[key] for key in _KEYS)): span["_offset_max"] + 1
                for span in spans
            }
        return rows

    def _forget(self, live: set[str]) -> None:
        """Drop what is known of files that compaction replaced."""
        self._spent &= live
        for path in self._ends.keys() - live:
            del self._ends[path]


def _past(rows: pa.Table, after: Positions, reached: Positions) -> pa.Table:
    """Rows at or past `after`, vectorised: one comparison per known partition."""
    old = pa.scalar(False)
    for place in reached:
        low = after.get(place, 0)
        if low > 0:
            is_old = pc.less(rows.column("_offset"), low)
            old = pc.or_(old, pc.and_(_of(rows, place), is_old))
    return rows.filter(pc.invert(old)) if isinstance(old, pa.ChunkedArray) else rows


def _of(rows: pa.Table, place: SourcePartition) -> pa.ChunkedArray:
    same_topic = pc.and_(
        pc.equal(rows.column("_topic"), place.topic),
        pc.equal(rows.column("_topic_id"), place.topic_id),
    )
    return pc.and_(same_topic, pc.equal(rows.column("_partition"), place.partition))
