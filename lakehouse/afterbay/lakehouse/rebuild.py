"""Make experience again from inference and reward, and compare; and rewards with their feedback.

In:   the pinned tables `experience`, `reward`, `inference`, `feedback`
Out:  differences; how many pairs the experience table has still to take in
Never: reads texts; wide columns are compared by one hash per row
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from afterbay.dsa.rewards import Edges
from afterbay.lakehouse import tables
from afterbay.lakehouse.proof import (
    Difference,
    Pinned,
    below,
    found,
    id_day,
    label_day,
    past,
    with_source,
)
from afterbay.schemas.topics import EXPERIENCE_TABLE

_PAIR = ("inference_id", "reward_event_id")
_SIDES = {
    "inference": tables.EXPERIENCE_FROM_INFERENCE,
    "reward": tables.EXPERIENCE_FROM_REWARD,
}
_SHOWN = (
    pl.lit("reward.assigned.v2").alias("_topic"),
    pl.col("reward_partition").alias("_partition"),
    pl.col("reward_offset").alias("_offset"),
)


def experience_differences(
    experience: Pinned, reward: Pinned, inference: Pinned, edges: Edges
) -> tuple[list[Difference], int]:
    """How `experience` differs from rewards joined with inferences; pairs not yet taken in.

    Each (reward, inference) pair is one row, once both lie below the experience's positions.
    """
    pairs = _side(reward, "reward").join(_side(inference, "inference"), on="inference_id")
    reached = experience.positions
    due = below(below(pairs, reached, "reward_").drop("_next"), reached, "inference_")
    actual = _actual(experience, edges)
    both = due.join(actual, on=_PAIR, suffix="_actual")
    differs = pl.any_horizontal(
        pl.col(f"{side}_{name}").ne_missing(pl.col(f"{side}_{name}_actual"))
        for side in _SIDES
        for name in ("hash", *tables.EXPERIENCE_PLACES)
    )
    ahead = [past(actual, reached, f"{side}_") for side in _SIDES]
    return [
        *(d for rows in ahead for d in _found("past", rows, "no row past the positions")),
        *_found("doubled", actual.filter(~pl.struct(_PAIR).is_first_distinct()), "a pair once"),
        *_found("missing", due.join(actual, on=_PAIR, how="anti"), "every pair"),
        *_found("extra", actual.join(pairs, on=_PAIR, how="anti"), "only pairs that exist"),
        *_found("changed", both.filter(differs), "columns as in inference and reward"),
        *_found("moved", actual.filter(~pl.col("_in_place")), "day and range as id and reward say"),
    ], pairs.height - due.height


def reward_differences(reward: Pinned, feedback: Pinned) -> list[Difference]:
    """Rewards that name feedback which is not there, is about another inference, or miscounts."""
    rows = reward.placed(["inference_id", "feedback_ids", "feedback_count"])
    miscounted = rows.filter(pl.col("feedback_ids").list.len() != pl.col("feedback_count"))
    named = rows.explode("feedback_ids").drop_nulls("feedback_ids")
    there = feedback.rows(["event_id", "inference_id"]).unique()
    pair = ["feedback_ids", "inference_id"]
    lost = named.join(there.rename({"event_id": "feedback_ids"}), on=pair, how="anti")
    return [
        *found("reward", "unfounded", miscounted, "`feedback_count` counts `feedback_ids`"),
        *found("reward", "unfounded", lost, "feedback of this inference, in table feedback"),
    ]


def _found(kind: str, rows: pl.DataFrame, expected: str) -> list[Difference]:
    return found(EXPERIENCE_TABLE, kind, rows.select(*_SHOWN), expected)


def _side(table: Pinned, side: str) -> pl.DataFrame:
    """One side of the join: ids, place and one hash; of a doubled event the lowest offset."""
    columns = _SIDES[side]
    ids = ("event_id",) if side == "inference" else ("event_id", "inference_id")
    places = [f"_{name}" for name in tables.EXPERIENCE_PLACES]
    rows = _hashed(table.rows([*ids, *places, *columns]), columns, f"{side}_hash")
    names = {f"_{name}": f"{side}_{name}" for name in tables.EXPERIENCE_PLACES}
    names["event_id"] = "inference_id" if side == "inference" else "reward_event_id"
    kept = rows.rename(names).sort(f"{side}_offset").unique(names["event_id"], keep="first")
    return with_source(kept, f"{side}_")


def _actual(experience: Pinned, edges: Edges) -> pl.DataFrame:
    places = [f"{side}_{name}" for side in _SIDES for name in tables.EXPERIENCE_PLACES]
    labels = ("date", tables.RANGE_COLUMN, "edges_id")
    wide = [name for columns in _SIDES.values() for name in columns]
    rows = experience.rows([*_PAIR, *places, *labels, *wide]).with_columns(_in_place(edges))
    for side, columns in _SIDES.items():
        rows = with_source(_hashed(rows, columns, f"{side}_hash", drop=False), f"{side}_")
    return rows.drop(wide)


def _in_place(edges: Edges) -> pl.Expr:
    """Whether a row lies in the partition that its id, its reward and the edges say."""
    reward = pl.col("reward")
    label = (
        pl.when(reward < edges.mid)
        .then(pl.lit("low"))
        .when(reward < edges.high)
        .then(pl.lit("mid"))
        .otherwise(pl.lit("high"))
    )
    in_range = (pl.col(tables.RANGE_COLUMN) == label) & (pl.col("edges_id") == edges.edges_id)
    return (
        (in_range & (label_day("date") == id_day("inference_id")))
        .fill_null(False)
        .alias("_in_place")
    )


def _hashed(
    rows: pl.DataFrame, columns: Sequence[str], name: str, *, drop: bool = True
) -> pl.DataFrame:
    hashed = rows.with_columns(rows.select(columns).hash_rows().alias(name))
    return hashed.drop(columns) if drop else hashed
