"""The newest experience, the same from Polars and from SQL; raw ranges would be wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from afterbay.lakehouse import experience, query, tables
from afterbay.lakehouse.lake import Lake
from afterbay.lakehouse.ledger import TableLedger
from afterbay.lakehouse.positions import SourcePartition
from tests.support.lakes import row

REWARD = SourcePartition("reward.assigned.v2", "rew", 0)


def put(lake: Lake, *events: dict[str, Any]) -> None:
    rows = [
        row("experience", **{"date": "2026-03-01", "reward_range": "low", **event})
        for event in events
    ]
    table = pa.Table.from_pylist(rows, tables.arrow_schema("experience"))
    ledger = TableLedger(lake, "experience", "bucketer")
    start = ledger.next_offsets([REWARD])
    ledger.append(table, start, {REWARD: start.get(REWARD, 0) + 1})


def one(inference: str, reward: str, generation: int, count: int, offset: int) -> dict[str, Any]:
    return {
        "inference_id": inference,
        "reward_event_id": reward,
        "generation": generation,
        "feedback_count": count,
        "reward_offset": offset,
    }


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake(str(tmp_path))
    tables.ensure(made)
    return made


def test_a_corrected_reward_replaces_the_old_one_over_ranges(lake: Lake) -> None:
    put(lake, one("i", "r1", 1, 1, 0) | {"reward": 0.9, "reward_range": "high"})
    put(lake, one("i", "r2", 1, 2, 1) | {"reward": 0.1, "reward_range": "low"})
    raw = tables.open(lake, "experience").to_pyarrow_table()
    assert raw.filter(pc.equal(raw.column("reward_range"), "high")).num_rows == 1, "raw is wrong"
    newest = experience.current(lake, ["inference_id", "reward"])
    assert newest.to_pylist() == [{"inference_id": "i", "reward": 0.1}]
    sql = "SELECT reward FROM experience_current"
    assert query.connect(lake).sql(f"{sql} WHERE reward_range = 'high'").fetchall() == []
    assert query.connect(lake).sql(sql).fetchall() == [(0.1,)]


def test_generation_comes_before_count_and_count_before_offset(lake: Lake) -> None:
    put(lake, one("a", "r1", 2, 1, 0), one("a", "r2", 1, 9, 5))
    put(lake, one("b", "r3", 1, 2, 1), one("b", "r4", 1, 1, 6))
    put(lake, one("c", "r5", 1, 1, 2), one("c", "r6", 1, 1, 7))
    found = experience.current(lake, ["inference_id", "reward_event_id"])
    assert found.column("reward_event_id").to_pylist() == ["r1", "r3", "r6"]


def test_of_a_doubled_reward_the_lowest_offset_counts(lake: Lake) -> None:
    put(lake, one("a", "r1", 1, 1, 9), one("a", "r1", 1, 1, 2), one("a", "r2", 1, 1, 5))
    found = experience.current(lake, ["reward_event_id", "reward_offset"])
    assert found.to_pylist() == [{"reward_event_id": "r2", "reward_offset": 5}]


def test_dates_prune_and_columns_are_those_asked_for(lake: Lake) -> None:
    put(lake, one("a", "r1", 1, 1, 0), one("b", "r2", 1, 1, 1) | {"date": "2026-03-02"})
    found = experience.current(lake, ["turn", "inference_id"], dates=["2026-03-02"])
    assert found.column_names == ["turn", "inference_id"]
    assert found.column("inference_id").to_pylist() == ["b"]
    assert set(experience.current(lake).column_names) == set(
        tables.arrow_schema("experience").names
    )


small = st.integers(0, 2)
events = st.builds(one, st.sampled_from("ab"), st.sampled_from("rst"), small, small, small)


@settings(max_examples=15, deadline=None)
@given(st.lists(events, min_size=1, max_size=12))
def test_polars_and_sql_agree_on_every_row(
    tmp_path_factory: pytest.TempPathFactory, made: list[dict[str, Any]]
) -> None:
    # an event is what it is wherever it is doubled: rank follows the reward's id
    same = {(e["inference_id"], e["reward_event_id"]): e for e in made}
    put_in = [
        e | {k: same[e["inference_id"], e["reward_event_id"]][k] for k in ("generation",)}
        for e in made
    ]
    lake = Lake(str(tmp_path_factory.mktemp("lake")))
    tables.ensure(lake)
    put(lake, *put_in)
    names = list(experience.RANK_COLUMNS)
    sql = f"SELECT {', '.join(names)} FROM experience_current ORDER BY inference_id"  # noqa: S608 - our own names
    rows = experience.current(lake, names).to_pylist()
    assert query.connect(lake).sql(sql).fetchall() == [tuple(r.values()) for r in rows]
