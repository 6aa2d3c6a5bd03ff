"""Append to a table exactly once: rows and the offsets they came from are one Delta commit.

In:   rows, the next offsets this owner expects the table to hold, and the new ones
Out:  one commit, on the disk, whose `txn` lines say where each partition goes on
Refuses: another owner's partitions (PartitionsFenced), rows outside [expected, new) or with other
      columns (BadState), tables that forget txns or whose newest commit is torn (BadState)
Never: retries by itself, moves a position back unless it is asked to (`rewind`), or runs
      checkpoints and clean-up

delta-rs refuses a txn id only against *concurrent* commits; a sequential repeat it accepts. So the
positions are read on the very handle that commits: what came before its version is checked here,
what came after is checked by delta-rs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import (
    CommitProperties,
    DeltaTable,
    Transaction,
    write_deltalake,
)

from afterbay.lakehouse import tables
from afterbay.lakehouse.commits import Commit, read_commit
from afterbay.lakehouse.durable import sync_commits
from afterbay.lakehouse.handle import TableHandle
from afterbay.lakehouse.lake import Lake
from afterbay.lakehouse.positions import Positions, SourcePartition
from afterbay.schemas.errors import BadState, Fenced, OutcomeUnknown, Retryable
from afterbay.schemas.faults import crash_points

MAX_COMMIT_RETRIES = 50
"""Times delta-rs may move a commit past others' commits; each of those is checked for our txns."""


class CommitFailed(Retryable):
    """The table holds none of it; the same append may be made again."""


class CommitUnknown(OutcomeUnknown):
    """The commit failed and so did the look after it; ask `next_offsets` before anything else."""


class PartitionsFenced(Fenced):
    """Other owners moved these partitions; drop them, append the rest."""

    def __init__(self, table: str, partitions: Iterable[SourcePartition]) -> None:
        self.partitions = tuple(sorted(partitions))
        """Partitions that are no longer this owner's."""
        names = ", ".join(f"{p.topic}/{p.partition}" for p in self.partitions)
        super().__init__(
            f"table {table}: another owner has moved {names}; nothing was written: give these "
            "partitions up, append the others again"
        )


class TableLedger:
    """One owner's way into one table. Used by one thread at a time."""

    def __init__(self, lake: Lake, table: str, pipeline: str) -> None:
        self._lake = lake
        self._table = table
        self._pipeline = pipeline
        self._schema = tables.arrow_schema(table)
        self._view = TableHandle(lake, table)

    def next_offsets(self, partitions: Iterable[SourcePartition]) -> dict[SourcePartition, int]:
        """Next offset of each partition, from a fresh look; a partition never written is absent."""
        self._view.afresh()
        held = {p: self._view.txns.get(p.txn_id(self._pipeline)) for p in partitions}
        return {p: v for p, v in held.items() if v is not None}

    def append(self, rows: pa.Table | None, expected: Positions, new: Positions) -> int:
        """Write `rows` and move each partition in `new` from `expected` in one commit; its version.

        A partition that the table has never held counts as 0, in the table and in `expected`.
        Without rows the commit moves positions only; if nothing moves there is no commit.
        Raises PartitionsFenced, CommitFailed, Unavailable, BadState: nothing was written;
        CommitUnknown: it may have been.
        """
        believed = {p: expected.get(p, 0) for p in {*expected, *new}}
        return self._move(self._prepare(rows, believed, new), believed, new)

    def rewind(self, expected: Positions, new: Positions) -> int:
        """Move partitions back, without rows, in one commit; its version.

        For `rewinding` alone: a row that the table holds at or past its new position would be
        written twice. Raises what `append` raises.
        """
        ahead = sorted(p for p, v in new.items() if not 0 <= v <= expected.get(p, 0))
        if ahead:
            raise BadState(
                f"table {self._table}: {ahead[0].topic}/{ahead[0].partition} would move from "
                f"{expected.get(ahead[0], 0)} to {new[ahead[0]]}; a rewind only moves back"
            )
        return self._move(None, {p: expected[p] for p in new}, new)

    def _move(self, prepared: pa.Table | None, believed: Positions, new: Positions) -> int:
        moved = {p: v for p, v in new.items() if v != believed[p]}
        handle = self._view.newest()
        self._check_owner(believed)
        if not moved:
            return handle.version()
        before = handle.version()
        try:
            crash_points.reach("ledger.before_commit")
            self._commit(handle, prepared, moved)
            crash_points.reach("ledger.after_commit")
        except Exception as error:  # whatever it was, only the table knows whether it happened
            handle = self._resolve(error, believed, moved)
        return self._settle(handle.version(), before, moved)

    def _prepare(
        self, rows: pa.Table | None, believed: Positions, new: Positions
    ) -> pa.Table | None:
        _check_forward(self._table, believed, new)
        if rows is None or rows.num_rows == 0:
            return None
        shaped = _shaped(self._table, rows, self._schema)
        if "_offset" in shaped.schema.names:
            _check_inside(self._table, shaped, believed, new)
        elif new.items() <= believed.items():
            raise BadState(
                f"table {self._table}: rows without a moved position; a bug of the caller"
            )
        return shaped.sort_by([(name, "ascending") for name in tables.sort_columns(self._table)])

    def _check_owner(self, believed: Positions) -> None:
        taken = [p for p, v in believed.items() if self._held(p) != v]
        if taken:
            raise PartitionsFenced(self._table, taken)

    def _held(self, partition: SourcePartition) -> int:
        return self._view.txns.get(partition.txn_id(self._pipeline), 0)

    def _commit(self, handle: DeltaTable, rows: pa.Table | None, moved: Positions) -> None:
        txns = [Transaction(p.txn_id(self._pipeline), v) for p, v in sorted(moved.items())]
        properties = CommitProperties(app_transactions=txns, max_commit_retries=MAX_COMMIT_RETRIES)
        if rows is None:
            handle.create_write_transaction(
                [],
                "append",
                handle.schema(),
                list(tables.partition_columns(self._table)),
                commit_properties=properties,
                post_commithook_properties=tables.NO_HOOKS,
            )
            handle.update_incremental()  # unlike the call below, this one leaves the handle behind
            return
        write_deltalake(
            handle,
            rows,
            mode="append",
            writer_properties=tables.WRITER,
            commit_properties=properties,
            post_commithook_properties=tables.NO_HOOKS,
        )

    def _resolve(self, error: Exception, believed: Positions, moved: Positions) -> DeltaTable:
        """Find out what an exception meant; a fresh handle if the commit is in the table."""
        try:
            handle = self._view.afresh()
        except Retryable:
            raise CommitUnknown(
                f"table {self._table}: the commit failed ({type(error).__name__}) and the table "
                "cannot be read; it may hold the rows: read its positions before appending again"
            ) from error
        if all(self._held(p) == v for p, v in moved.items()):
            return handle
        taken = [p for p in moved if self._held(p) != believed[p]]
        if taken:
            raise PartitionsFenced(self._table, taken) from error
        raise CommitFailed(
            f"table {self._table}: the commit failed ({type(error).__name__}) and is not in the "
            "table; append again"
        ) from error

    def _settle(self, version: int, before: int, moved: Positions) -> int:
        """Put the commit, one of (before, version], on the disk; its version."""
        ours = _txns(self._pipeline, moved)
        commits = [read_commit(self._lake, self._table, v) for v in range(before + 1, version + 1)]
        made = [c for c in commits if c is not None]
        sync_commits(self._lake, self._table, made)
        return next((c.version for c in made if _carries(c, ours)), version)


def _txns(pipeline: str, positions: Positions) -> dict[str, int]:
    return {p.txn_id(pipeline): v for p, v in positions.items()}


def _carries(commit: Commit, txns: Mapping[str, int]) -> bool:
    return all(commit.txns.get(app_id) == version for app_id, version in txns.items())


def _check_forward(table: str, believed: Positions, new: Positions) -> None:
    back = sorted(p for p, v in new.items() if v < believed[p])
    if back:
        raise BadState(
            f"table {table}: {back[0].topic}/{back[0].partition} would move back from "
            f"{believed[back[0]]} to {new[back[0]]}; positions only grow"
        )


def _shaped(table: str, rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """`rows` in the table's columns and types; labels of partitions must be plain."""
    if set(rows.schema.names) != set(schema.names):
        different = sorted(set(rows.schema.names) ^ set(schema.names))
        raise BadState(f"table {table}: columns {', '.join(different)} are missing or unknown")
    shaped = rows.select(schema.names).cast(schema)
    for name in tables.partition_columns(table):
        column = shaped.column(name)
        if column.null_count or pc.any(pc.equal(column, "")).as_py():
            raise BadState(f"table {table}: a row has no {name}; partitions are plain labels")
    return shaped


def _check_inside(table: str, rows: pa.Table, believed: Positions, new: Positions) -> None:
    """BadState unless every row's offset lies in [believed, new) of its partition."""
    keys = ["_topic", "_topic_id", "_partition"]
    spans = rows.group_by(keys).aggregate([("_offset", "min"), ("_offset", "max")])
    for span in spans.to_pylist():
        source = SourcePartition(*(span[key] for key in keys))
        low, high = believed.get(source, 0), new.get(source, -1)
        if not low <= span["_offset_min"] <= span["_offset_max"] < high:
            raise BadState(
                f"table {table}: rows of {source.topic}/{source.partition} lie at offsets "
                f"{span['_offset_min']} to {span['_offset_max']}, the commit covers [{low}, {high})"
            )
