"""Slices on a small real lake: what is in them, what is not, and that they come back the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from afterbay.lakehouse import slices, tables
from afterbay.lakehouse.lake import Lake
from afterbay.lakehouse.ledger import TableLedger
from afterbay.lakehouse.positions import SourcePartition
from afterbay.schemas import ids
from afterbay.schemas.clock import EPOCH
from afterbay.schemas.errors import BadState
from tests.support.lakes import NOON, row

INFERENCE = SourcePartition("inference.completed.v2", "inf", 0)
REWARD = SourcePartition("reward.assigned.v2", "rew", 0)
DROP = SourcePartition("experience.dropped.v2", "dro", 0)
POLICY = SourcePartition("policy.snapshot.v2", "pol", 0)


@dataclass
class Tables:
    """A lake, and appends to it that keep their own offsets."""

    lake: Lake
    offsets: dict[SourcePartition, int] = field(default_factory=dict)
    number: Iterator[int] = field(default_factory=count)

    def append(self, table: str, pipeline: str, source: SourcePartition, rows: list[Any]) -> None:
        start = self.offsets.get(source, 0)
        self.offsets[source] = start + len(rows)
        expected = {source: start}
        moved = {source: self.offsets[source]}
        if table == "experience":
            expected[INFERENCE] = self.offsets.get(INFERENCE, 0)
            self.offsets[INFERENCE] = max(r["inference_offset"] for r in rows) + 1
            moved[INFERENCE] = self.offsets[INFERENCE]
        data = pa.Table.from_pylist(rows, tables.arrow_schema(table))
        TableLedger(self.lake, table, pipeline).append(data, expected, moved)

    def experience(self, inference_id: str, **values: Any) -> str:
        at = self.offsets.get(REWARD, 0)
        reward_id = ids.new_id(NOON)
        one = {
            "inference_id": inference_id,
            "reward_event_id": reward_id,
            "policy": "p",
            "function_id": "f",
            "edges_id": "e",
            "completed_at": NOON,
            "date": "2026-03-01",
            "reward_range": "low",
            "reward_topic_id": "rew",
            "reward_offset": at,
            "inference_topic_id": "inf",
            "inference_offset": at,
            "snapshot_id": "s1",
        }
        self.append("experience", "bucketer", REWARD, [row("experience", **(one | values))])
        return reward_id

    def place(self, source: SourcePartition, table: str, **values: Any) -> None:
        at = {"_topic": source.topic, "_topic_id": source.topic_id, "date": "2026-03-01"}
        offset = self.offsets.get(source, 0)
        self.append(table, "sink", source, [row(table, **at, _offset=offset, **values)])

    def plan(self, **values: Any) -> slices.SliceSpec:
        settings: dict[str, Any] = {
            "policy": "p",
            "since": NOON - timedelta(hours=1),
            "until": NOON + timedelta(hours=1),
            "function_id": "f",
            "edges_id": "e",
            "max_lag": 2,
            "max_age": timedelta(days=1),
            "seed": 1,
        }
        return slices.plan(self.lake, **(settings | values))


@pytest.fixture
def made(tmp_path: Path) -> Tables:
    lake = Lake(str(tmp_path))
    tables.ensure(lake)
    return Tables(lake)


def inference_id() -> str:
    return ids.new_id(NOON)


def read_ids(made: Tables, spec: slices.SliceSpec) -> list[str]:
    found: list[str] = slices.read(made.lake, spec).column("inference_id").to_pylist()
    return found


def test_the_newest_reward_of_an_inference_counts_even_from_a_lower_range(made: Tables) -> None:
    one = inference_id()
    made.experience(one, reward=0.9, reward_range="high", feedback_count=1)
    made.experience(one, reward=0.1, reward_range="low", feedback_count=2)
    rows = slices.read(made.lake, made.plan())
    assert rows.column("reward").to_pylist() == [0.1]


def test_a_spec_read_later_gives_the_rows_it_was_planned_with(made: Tables) -> None:
    one, two = inference_id(), inference_id()
    made.experience(one, reward=0.2, feedback_count=1)
    spec = slices.from_json(made.plan().to_json())
    before = slices.read(made.lake, spec)
    made.experience(one, reward=0.8, feedback_count=2)
    made.experience(two)
    made.place(DROP, "drop", inference_id=one)
    assert slices.read(made.lake, spec).equals(before)
    assert read_ids(made, made.plan()) == [two]


def test_rows_are_sorted_by_inference_id(made: Tables) -> None:
    for name in ("c", "a", "b"):
        made.experience(name)
    assert read_ids(made, made.plan()) == ["a", "b", "c"]


def test_another_policy_function_edge_or_window_is_not_read(made: Tables) -> None:
    for other in (
        {"policy": "q"},
        {"function_id": "g"},
        {"edges_id": "g"},
        {"completed_at": NOON + timedelta(hours=1)},
        {"completed_at": NOON - timedelta(hours=2)},
    ):
        made.experience(inference_id(), **other)
    assert made.plan().rows == 0


def test_lag_counts_snapshots_published_since_the_oldest_token(made: Tables) -> None:
    for snapshot in ("s0", "s1", "s2", "s3"):
        made.place(POLICY, "policy", policy="p", action="published", snapshot_id=snapshot)
    segments = [{"start": 0, "snapshot_id": "s2"}, {"start": 1, "snapshot_id": "s3"}]
    made.experience("a", snapshot_id="s3", segments=segments)
    made.experience("b", snapshot_id="s1")
    made.experience("c", snapshot_id="s0")
    rows = slices.read(made.lake, made.plan())
    assert rows.column("lag").to_pylist() == [1, 2, 3]


def test_a_spec_names_the_newest_snapshots_tokenizer(made: Tables) -> None:
    assert made.plan().tokenizer == ""
    for name in ("old", "new"):
        manifest = f'{{"format":"afterbay.snapshot/1","tokenizer":"{name}"}}'
        made.place(POLICY, "policy", policy="p", action="published", manifest=manifest)
    assert made.plan().tokenizer == "new"


def test_sessions_are_held_out_by_their_id_alone(made: Tables) -> None:
    names = [f"s_{n}" for n in range(2_000)]
    marks = slices.held_out(names)
    assert marks == slices.held_out(names)
    assert 150 < sum(marks) < 250
    for name in names[:20]:
        made.experience(inference_id(), session_id=name)
    rows = slices.read(made.lake, made.plan())
    found = dict(
        zip(*(rows.column(c).to_pylist() for c in ("session_id", "held_out")), strict=True)
    )
    assert found == dict(zip(names[:20], marks[:20], strict=True))


def test_new_experience_is_counted_by_reward_offsets(made: Tables) -> None:
    made.experience(inference_id())
    first = slices.count_new(made.lake, {}, EPOCH)
    made.experience(inference_id())
    made.experience(inference_id())
    second = slices.count_new(made.lake, first.positions, EPOCH)
    assert (first.rows, second.rows) == (1, 2)
    assert slices.count_new(made.lake, second.positions, EPOCH).rows == 0
    # a late reward of an answer that no slice holds any more asks for no training
    assert slices.count_new(made.lake, {}, datetime.now(UTC) + timedelta(days=1)).rows == 0


def test_rows_that_are_not_the_specs_are_refused(made: Tables) -> None:
    made.experience(inference_id())
    spec = made.plan()
    tables.open(made.lake, "experience").delete()
    with pytest.raises(BadState, match="another"):
        slices.read(made.lake, spec)


def test_a_text_that_is_no_spec_is_refused() -> None:
    with pytest.raises(BadState, match="slice spec"):
        slices.from_json("{}")
