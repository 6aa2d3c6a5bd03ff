"""Move a restored table's positions back to where its rows end, so that its writer fills it again.

In:   a table that Delta RESTORE took back to an older version, and what its rows come from: the
      archive; for `experience` the tables reward and inference
Out:  `plan`: which partition goes back to which offset; `apply`: one commit that says so
Refuses: rows past a hole (they would be written twice), an archive that ends before the table does,
      an offset that would double a row or leave one out
Never: moves a position forward, touches a row, or guesses: every position comes from rows

RESTORE takes rows away and keeps the txns, so the writer goes on where it was and never reads again
what is gone. A restore takes back the newest commits, and commits hold growing offsets: of each
partition a suffix is gone, and the right position is its first archived event that is not there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import polars as pl

from afterbay.dsa.rewards import Edges
from afterbay.lakehouse import tables
from afterbay.lakehouse.coverage import archived, belongs, chain_breaks
from afterbay.lakehouse.lake import Lake
from afterbay.lakehouse.ledger import TableLedger
from afterbay.lakehouse.positions import SourcePartition
from afterbay.lakehouse.proof import KEY, PLACE, Pinned, pin, positions_at, writer_of
from afterbay.lakehouse.rebuild import experience_differences
from afterbay.schemas.errors import BadSettings, BadState
from afterbay.schemas.topics import ARCHIVE_TABLE, EXPERIENCE_TABLE


@dataclass(frozen=True, slots=True)
class Step:
    """One partition that goes back. Made by `plan`, shown to people, committed by `apply`."""

    source: SourcePartition
    held: int
    """Next offset that the table says now."""
    to: int
    """Next offset that it will say."""
    missing: int | None
    """Archived events in between that the table lacks; None for the archive, which counts them."""
    last: int
    """Offset of the partition's last row in the table; -1 if it has none."""


def plan(lake: Lake, table: str) -> tuple[Step, ...]:
    """Every partition of `table` that stands past its rows; empty if there is none."""
    _check_table(table)
    pinned = pin(lake, table)
    if table == EXPERIENCE_TABLE:
        return _steps(table, _by_restored_version(lake, pinned))
    archive = pinned if table == ARCHIVE_TABLE else pin(lake, ARCHIVE_TABLE)
    rows = archived(archive)
    if table == ARCHIVE_TABLE:
        return _steps(table, _by_coverage(archive, rows))
    _check_archive(table, pinned, archive)
    return _steps(table, _by_archive(table, pinned, rows))


def plan_to(lake: Lake, table: str, topic: str, partition: int, to: int) -> tuple[Step, ...]:
    """The step of one partition to the offset `to`, which must double and leave out nothing."""
    found = [
        s for s in plan(lake, table) if (s.source.topic, s.source.partition) == (topic, partition)
    ]
    if len(found) != 1:
        raise BadSettings(
            f"table {table}: {len(found)} logs of {topic}/{partition} stand past their rows, "
            "expected one; without --to every position is computed"
        )
    step = found[0]
    if not step.last < to <= step.to:
        raise BadSettings(
            f"--to {to}: {topic}/{partition} of table {table} can go back to {step.last + 1} .. "
            f"{step.to}; lower, rows that are there would be written twice, higher, events would "
            "be left out"
        )
    return (replace(step, to=to),)


def apply(lake: Lake, table: str, steps: Sequence[Step]) -> int:
    """Commit `steps`; the table's version that says so.

    PartitionsFenced if a position has moved since the plan was made: nothing was written.
    """
    expected = {step.source: step.held for step in steps}
    return TableLedger(lake, table, writer_of(table)).rewind(
        expected, {s.source: s.to for s in steps}
    )


def _check_table(table: str) -> None:
    if table not in tables.NAMES:
        known = ", ".join(tables.NAMES)
        raise BadSettings(f"--table: no table {table}; known: {known}")


def _check_archive(table: str, pinned: Pinned, archive: Pinned) -> None:
    """The archive is the measure only as far as it goes."""
    both = pinned.positions.join(archive.positions, on="_source", how="left", suffix="_archive")
    short = both.filter(pl.col("_next_archive").fill_null(0) < pl.col("_next"))
    if not short.is_empty():
        first = short.sort(*PLACE).row(0, named=True)
        raise BadState(
            f"the archive ends at {first['_next_archive'] or 0} of {first['_topic']}/"
            f"{first['_partition']}, table {table} at {first['_next']}: what belongs in between is "
            "not known; rewind the archive if it was restored too, let the sink run, then try again"
        )


def _by_archive(table: str, pinned: Pinned, rows: pl.DataFrame) -> pl.DataFrame:
    """Per source: `_to`, the first event that is not there, and how many are `_missing`."""
    present = pinned.placed([])
    due = rows.filter(belongs(table)).join(
        pinned.positions.select("_source", "_next"), on="_source"
    )
    gone = due.filter(pl.col("_offset") < pl.col("_next")).join(present, on=KEY, how="anti")
    first = gone.group_by("_source").agg(
        pl.col("_offset").min().alias("_to"), pl.len().alias("_missing")
    )
    return _with_last(pinned.positions.join(first, on="_source", how="left"), present)


def _by_coverage(archive: Pinned, rows: pl.DataFrame) -> pl.DataFrame:
    """Per source: `_to`, the end of what its rows cover."""
    broken = chain_breaks(rows)
    if not broken.is_empty():
        first = broken.sort(*PLACE, "_offset").row(0, named=True)
        raise BadState(
            f"table {ARCHIVE_TABLE}: the row at {first['_topic']}/{first['_partition']} offset "
            f"{first['_offset']} does not follow the one before; {_RESTORE_MORE}"
        )
    none = pl.lit(None, pl.Int64).alias("_missing")
    with_last = _with_last(archive.positions.with_columns(none), rows)
    return with_last.with_columns((pl.col("_last") + 1).alias("_to"))


def _by_restored_version(lake: Lake, pinned: Pinned) -> pl.DataFrame:
    """Per source: `_to`, the position at a version restored to, if the rows agree with it.

    A pair of reward and inference does not tell in which order its halves came, so here the log
    says where the positions stood, and the rows have to confirm it.
    """
    reward, inference = pin(lake, "reward"), pin(lake, "inference")
    for version in [pinned.handle.version(), *_restored(pinned)]:
        then = positions_at(lake, pinned.name, version)
        there = replace(pinned, positions=then)
        if not experience_differences(there, reward, inference, Edges())[0]:
            to = then.select("_source", pl.col("_next").alias("_to"))
            both = pinned.positions.join(to, on="_source", how="left")
            none = pl.lit(None, pl.Int64).alias("_missing")
            return both.with_columns(pl.col("_to").fill_null(0), none, pl.lit(-1).alias("_last"))
    raise BadState(
        f"table {pinned.name}: its rows are those of no version it was restored to; stop the "
        "bucketer, restore it once more, then rewind before the bucketer runs again"
    )


def _restored(pinned: Pinned) -> list[int]:
    """Versions that the table was restored to, the newest restore first."""
    done = [c for c in pinned.handle.history() if c.get("operation") == "RESTORE"]
    named = [c.get("operationParameters", {}).get("version") for c in done]
    return [int(version) for version in named if version is not None]


_RESTORE_MORE = (
    "a restore takes the newest rows away and leaves no hole: restore the table once more, to a "
    "version before the row past the hole was written, then rewind; everything from the hole on is "
    "read again"
)


def _with_last(positions: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    last = rows.group_by("_source").agg(pl.col("_offset").max().alias("_last"))
    joined = positions.join(last, on="_source", how="left")
    return joined.with_columns(pl.col("_last").fill_null(-1))


def _steps(table: str, found: pl.DataFrame) -> tuple[Step, ...]:
    steps = tuple(_step(table, row) for row in found.sort(*PLACE).iter_rows(named=True))
    return tuple(step for step in steps if step.to < step.held)


def _step(table: str, row: dict[str, str | int | None]) -> Step:
    topic, topic_id, partition, held, last = (row[n] for n in (*PLACE, "_next", "_last"))
    step = Step(
        SourcePartition(str(topic), str(topic_id), _whole(partition)),
        held=_whole(held),
        to=_whole(held if row["_to"] is None else row["_to"]),
        missing=None if row["_missing"] is None else _whole(row["_missing"]),
        last=_whole(last),
    )
    if step.last >= step.to:
        raise BadState(
            f"table {table}: {step.source.topic}/{step.source.partition} lacks the event at "
            f"{step.to} and has a row at {step.last}, which would be written twice; {_RESTORE_MORE}"
        )
    return step


def _whole(value: str | int | None) -> int:
    return int(value or 0)
