"""Does the archive cover every partition's [0, next) exactly once? And each table hold its share?

In:   the pinned archive, and a pinned table that the sink writes
Out:  differences; how many archived events a table has still to take in
Never: counts by offset differences: control records and aborts take offsets too
"""

from __future__ import annotations

import polars as pl

from afterbay.lakehouse.archive import DEAD, EVENT, GAP
from afterbay.lakehouse.proof import (
    KEY,
    PLACE,
    Difference,
    Pinned,
    below,
    found,
    id_day,
    label_day,
    past,
)
from afterbay.lakehouse.tables import TOPIC_OF
from afterbay.schemas.topics import ARCHIVE_TABLE, DEADLETTER_TABLE, TABLES, TOPICS

_ARCHIVE_COLUMNS = ("_kind", "_event_id", "_gap_before", "_ts", "date")
_SHOWN = (*PLACE, "_offset")


def archived(archive: Pinned) -> pl.DataFrame:
    """Every archive row, narrow, below the archive's own positions and past them alike."""
    return archive.placed(_ARCHIVE_COLUMNS)


def archive_differences(archive: Pinned, rows: pl.DataFrame) -> list[Difference]:
    """Holes, overlaps, doubled ids and moved rows of the archive itself."""
    events = rows.filter(pl.col("_kind") == EVENT)
    known = pl.col("_topic").is_in(list(TABLES)) & pl.col("_kind").is_in([EVENT, DEAD, GAP])
    on_its_day = label_day("date") == pl.col("_ts").dt.epoch("d").cast(pl.Int64)
    return [
        *_cover(archive, rows),
        *found(ARCHIVE_TABLE, "past", past(rows, archive.positions), "no row past the position"),
        *found(ARCHIVE_TABLE, "doubled", _doubled(events, ["_event_id"]), "an id is used once"),
        *found(ARCHIVE_TABLE, "unknown", _not(rows, known), "topics that have a table"),
        *found(ARCHIVE_TABLE, "moved", _not(rows, on_its_day), "`date` is the day of `_ts`"),
    ]


def table_differences(
    table: Pinned, archive: Pinned, rows: pl.DataFrame
) -> tuple[list[Difference], int]:
    """How `table` differs from what the archive says it holds; events it has still to take in."""
    name = table.name
    expected = rows.filter(belongs(name)).select(*_SHOWN, "_source", "_kind", "_event_id")
    dated = TOPICS[TOPIC_OF[name]].date_of
    actual = table.placed(["date", *dict.fromkeys(("event_id", dated))])
    limits = _lower(table.positions, archive.positions)
    here, there = below(actual, limits), below(expected, limits)
    ahead = past(expected, table.positions).height
    on_its_day = label_day("date") == id_day(dated)
    return [
        *found(name, "past", past(actual, table.positions), "no row past the table's position"),
        *found(name, "doubled", _doubled(actual, list(KEY)), "each offset once"),
        *found(name, "doubled", _doubled(actual, ["event_id"]), "an event id once"),
        *found(name, "missing", there.join(here, on=KEY, how="anti"), "every archived event"),
        *found(name, "extra", here.join(there, on=KEY, how="anti"), "only archived events"),
        *found(name, "changed", _changed(here, there), "id and topic as archived"),
        *found(name, "moved", _not(actual, on_its_day), f"`date` is the day of `{dated}`"),
    ], ahead


def _cover(archive: Pinned, rows: pl.DataFrame) -> list[Difference]:
    """Rows of a partition, in offset order, must each start where the one before ended."""
    chained = _chained(rows)
    holes = chained.filter((pl.col("_start") > pl.col("_before")) | pl.col("_gap_before").is_null())
    overlaps = chained.filter(pl.col("_start") < pl.col("_before"))
    ends = rows.group_by("_source").agg(pl.col("_offset").max() + 1)
    short = archive.positions.join(ends, on="_source", how="left").filter(
        pl.col("_offset").fill_null(0) < pl.col("_next")
    )
    short = short.with_columns(pl.col("_offset").fill_null(0))
    return [
        *found(ARCHIVE_TABLE, "hole", holes, "each row starts where the one before ended"),
        *found(ARCHIVE_TABLE, "overlap", overlaps, "each offset is covered once"),
        *found(ARCHIVE_TABLE, "hole", short, "rows up to the table's position"),
    ]


def chain_breaks(rows: pl.DataFrame) -> pl.DataFrame:
    """Archive rows that do not start where the row before ended."""
    return _chained(rows).filter(pl.col("_start").ne_missing(pl.col("_before")))


def _chained(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows in offset order, with where each starts and where the one before ended."""
    before = pl.col("_offset").shift(1).over("_source").fill_null(-1) + 1
    return rows.sort("_source", "_offset").with_columns(
        before.alias("_before"), (pl.col("_offset") - pl.col("_gap_before")).alias("_start")
    )


def belongs(table: str) -> pl.Expr:
    """Which archive rows stand for a row of `table`."""
    events = (pl.col("_topic") == TOPIC_OF[table]) & (pl.col("_kind") == EVENT)
    return events | (pl.col("_kind") == DEAD) if table == DEADLETTER_TABLE else events


def _lower(one: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
    """The lower position of each source that both know."""
    both = one.join(other, on="_source", suffix="_other")
    return both.with_columns(pl.min_horizontal("_next", "_next_other").alias("_next"))


def _changed(here: pl.DataFrame, there: pl.DataFrame) -> pl.DataFrame:
    pairs = here.join(there, on=KEY, suffix="_archived")
    other_id = pl.col("event_id").ne_missing(pl.col("_event_id")) & (pl.col("_kind") == EVENT)
    return pairs.filter(other_id | (pl.col("_topic") != pl.col("_topic_archived")))


def _doubled(rows: pl.DataFrame, names: list[str]) -> pl.DataFrame:
    """The second and later rows that share `names` with an earlier one."""
    return rows.filter(~pl.struct(names).is_first_distinct())


def _not(rows: pl.DataFrame, holds: pl.Expr) -> pl.DataFrame:
    return rows.filter(~holds.fill_null(False))
