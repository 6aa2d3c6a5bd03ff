"""Bucketer on a real small lake: each pair once, whichever side came first."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from afterbay.lakehouse import experience, query, tables
from afterbay.lakehouse.lake import Lake
from afterbay.schemas import ids
from afterbay.schemas.errors import Fenced
from afterbay.streams.bucketer import Bucketer
from tests.support.lakes import NOON, Log


@dataclass
class Sides:
    """Both inputs of a bucketer."""

    lake: Lake

    def __post_init__(self) -> None:
        self.inferences = Log(self.lake, "inference.completed.v2", "inference")
        self.rewards = Log(self.lake, "reward.assigned.v2", "reward")
        self.bucketer = self.start()

    def start(self) -> Bucketer:
        self.bucketer = Bucketer(lake=self.lake)
        self.bucketer.open()
        return self.bucketer

    def infer(self, inference_id: str) -> None:
        self.inferences.put({"event_id": inference_id})

    def reward(self, inference_id: str, reward: float, count: int = 1) -> str:
        event_id = ids.new_id(NOON)
        event = {"event_id": event_id, "inference_id": inference_id, "reward": reward}
        self.rewards.put({**event, "feedback_count": count, "generation": 1})
        return event_id

    def pairs(self) -> list[tuple[str, str, str]]:
        names = ["inference_id", "reward_event_id", "reward_range"]
        rows = tables.open(self.lake, "experience").to_pyarrow_table(columns=names)
        return sorted(zip(*(rows.column(n).to_pylist() for n in names), strict=True))


def fresh(folder: Path) -> Sides:
    lake = Lake(str(folder))
    tables.ensure(lake)
    return Sides(lake)


@pytest.fixture
def sides(tmp_path: Path) -> Sides:
    return fresh(tmp_path)


def test_a_reward_after_its_inference_becomes_experience(sides: Sides) -> None:
    one = ids.new_id(NOON)
    sides.infer(one)
    sides.bucketer.drain()
    reward = sides.reward(one, 0.9)
    sides.bucketer.drain()
    assert sides.pairs() == [(one, reward, "high")]


def test_a_reward_before_its_inference_is_not_lost(sides: Sides) -> None:
    one = ids.new_id(NOON)
    reward = sides.reward(one, 0.1)
    sides.bucketer.drain()
    assert sides.pairs() == []
    sides.start()
    sides.infer(one)
    sides.bucketer.drain()
    assert sides.pairs() == [(one, reward, "low")]


def test_a_corrected_reward_is_right_in_the_view_and_stale_in_its_old_range(sides: Sides) -> None:
    one = ids.new_id(NOON)
    sides.infer(one)
    sides.reward(one, 0.9, count=1)
    sides.bucketer.drain()
    newest = sides.reward(one, 0.1, count=2)
    sides.bucketer.drain()
    raw = tables.open(sides.lake, "experience").to_pyarrow_table(
        filters=[("reward_range", "=", "high")]
    )
    assert raw.num_rows == 1, "the raw range still holds the superseded row"
    current = experience.current(sides.lake, ["reward_event_id", "reward_range"]).to_pylist()
    assert current == [{"reward_event_id": newest, "reward_range": "low"}]
    sql = "select reward_range from experience_current"
    assert query.connect(sides.lake).execute(sql).fetchall() == [("low",)]


def test_a_step_without_news_commits_nothing(sides: Sides) -> None:
    sides.infer(ids.new_id(NOON))
    sides.bucketer.drain()
    version = tables.open(sides.lake, "experience").version()
    assert sides.bucketer.step() is False
    assert tables.open(sides.lake, "experience").version() == version


def test_a_second_bucketer_fences_the_first(sides: Sides) -> None:
    old, one = sides.bucketer, ids.new_id(NOON)
    sides.infer(one)
    sides.start().drain()
    sides.infer(ids.new_id(NOON))
    with pytest.raises(Fenced):
        old.step()


def test_rows_say_which_offsets_they_came_from(sides: Sides) -> None:
    for _ in range(3):
        one = ids.new_id(NOON)
        sides.infer(one)
        sides.reward(one, 0.5)
    sides.bucketer.drain()
    rows = tables.open(sides.lake, "experience").to_pyarrow_table()
    places = zip(
        *(rows.column(f"{s}_offset").to_pylist() for s in ("inference", "reward")), strict=True
    )
    assert sorted(places) == [(0, 0), (1, 1), (2, 2)]


steps = st.lists(
    st.sampled_from(["infer", "reward", "step", "restart"]).flatmap(
        lambda kind: st.tuples(st.just(kind), st.integers(0, 2))
    ),
    max_size=14,
)


@settings(max_examples=12, deadline=None)
@given(steps)
def test_any_order_of_arrival_and_restart_gives_each_pair_once(
    tmp_path_factory: pytest.TempPathFactory, plan: list[tuple[str, int]]
) -> None:
    sides = fresh(tmp_path_factory.mktemp("lake"))
    names = [ids.new_id(NOON) for _ in range(3)]
    seen: set[int] = set()
    rewards: list[tuple[int, str]] = []
    for kind, which in plan:
        if kind == "infer" and which not in seen:
            seen.add(which)
            sides.infer(names[which])
        elif kind == "reward":
            rewards.append((which, sides.reward(names[which], 0.5, count=len(rewards))))
        elif kind == "step":
            sides.bucketer.step()
        elif kind == "restart":
            sides.start()
    sides.bucketer.drain()
    assert sides.pairs() == sorted((names[w], r, "mid") for w, r in rewards if w in seen)
