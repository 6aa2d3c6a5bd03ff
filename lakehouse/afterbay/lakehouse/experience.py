"""The newest experience of every inference, over all reward ranges.

In:   table `experience`, where a corrected reward is one more row
Out:  `current`: one row per inference, that of its newest reward; `CURRENT_SQL`: the same in SQL
Never: prunes by reward range before the newest is known: `low` may hold what replaced a `high`

Newest = highest (generation, feedback count, reward offset). Of a doubled event the lowest offset
counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from afterbay.lakehouse import tables
from afterbay.lakehouse.files import whole
from afterbay.lakehouse.lake import Lake
from afterbay.schemas.topics import EXPERIENCE_TABLE

RANK_COLUMNS = (
    "inference_id",
    "reward_event_id",
    "generation",
    "feedback_count",
    "reward_offset",
    "inference_offset",
)
"""Narrow columns that decide which row is the newest."""

CURRENT_SQL = """
SELECT * EXCLUDE (_first) FROM (
  SELECT *, min(reward_offset) OVER (PARTITION BY inference_id, reward_event_id) AS _first
  FROM experience
) QUALIFY row_number() OVER (
  PARTITION BY inference_id
  ORDER BY generation DESC, feedback_count DESC, _first DESC, reward_event_id DESC,
           reward_offset, inference_offset
) = 1
"""
"""The view `experience_current`."""


def current(
    lake: Lake,
    columns: Sequence[str] | None = None,
    dates: Iterable[str] | None = None,
    *,
    version: int | None = None,
    where: ds.Expression | None = None,
) -> pa.Table:
    """Newest row per inference, sorted by inference_id; all columns if `columns` is None.

    `dates` prunes safely (rows of an inference share the date of its id); `where` tells which rows
    may count at all, e.g. those whose reward lies below a slice's offsets.
    """
    handle = tables.open(lake, EXPERIENCE_TABLE, version)
    names = list(tables.arrow_schema(EXPERIENCE_TABLE).names if columns is None else columns)
    found = _read(whole(lake, EXPERIENCE_TABLE, handle), names, dates, where)
    keep = newest_rows(found.select(list(RANK_COLUMNS)))
    return found.take(keep).select(names)


def newest_rows(ranked: pa.Table) -> pa.Array:
    """Indices of the newest row per inference in `ranked` (RANK_COLUMNS), by inference_id."""
    frame = pl.DataFrame(pl.from_arrow(ranked)).with_row_index("_row")
    first = pl.col("reward_offset").min().over("inference_id", "reward_event_id")
    newest = (
        frame.with_columns(first.alias("_first"))
        .sort(
            "inference_id",
            "generation",
            "feedback_count",
            "_first",
            "reward_event_id",
            "reward_offset",
            "inference_offset",
            descending=[False, True, True, True, True, False, False],
        )
        .unique("inference_id", keep="first", maintain_order=True)
    )
    return newest["_row"].to_arrow()


def _read(
    dataset: ds.Dataset,
    names: Sequence[str],
    dates: Iterable[str] | None,
    where: ds.Expression | None,
) -> pa.Table:
    wanted = where
    if dates is not None:
        among = pc.field("date").isin(sorted(dates))
        wanted = among if wanted is None else wanted & among
    extra = [name for name in RANK_COLUMNS if name not in names]
    return dataset.to_table(columns=[*names, *extra], filter=wanted)
