"""The oracle itself: it passes what is right and finds whatever is lost, doubled or wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.faults.oracle import FEEDBACK, INFERENCE, REWARD, Lake, Logged, Verdict, judge
from tests.faults.plan import FAULTS, draw

Rows = dict[str, list[dict[str, Any]]]


class Told(Lake):
    """Tables that are what a test says."""

    def __init__(self, tables: Rows) -> None:
        super().__init__(Path())
        self.tables = tables

    def rows(self, table: str, *columns: str) -> list[dict[str, Any]]:
        return [{name: row[name] for name in columns} for row in self.tables[table]]


def said(event_id: str, source: str, score: float | None) -> dict[str, Any]:
    """One opinion about inference i1."""
    about = {"inference_id": "i1", "caller": "c", "idempotency_key": None}
    return {"event_id": event_id, "source": source, "score": score, **about}


def reward(event_id: str, about: str, value: float, *opinions: str) -> dict[str, Any]:
    """A reward of some opinions."""
    folded = {"feedback_count": len(opinions), "feedback_ids": list(opinions)}
    return {"event_id": event_id, "inference_id": about, "reward": value, **folded}


def logged() -> Logged:
    """Two inferences; two opinions about the first, none about the second."""
    person, model = said("f1", "person", 1.0), said("f2", "model", 0.0)
    rewards = [
        reward("r1", "i1", 1.0, "f1"),
        reward("r2", "i1", 0.6 / 0.85, "f1", "f2"),
        reward("r3", "i2", 0.5),
    ]
    return Logged(
        {
            INFERENCE: {(0, 0): {"event_id": "i1"}, (0, 1): {"event_id": "i2"}},
            FEEDBACK: {(0, 0): person, (0, 1): model},
            REWARD: {(0, n): event for n, event in enumerate(rewards)},
        }
    )


def lake_of(log: Logged) -> Told:
    """The tables that hold just this log."""
    names = {INFERENCE: "inference", FEEDBACK: "feedback", REWARD: "reward"}
    tables: Rows = {"deadletter": [], "archive": [], "experience": []}
    for topic, events in log.events.items():
        tables[names[topic]] = []
        for (partition, offset), event in events.items():
            place = {"_partition": partition, "_offset": offset}
            tables[names[topic]].append({**place, "event_id": event["event_id"]})
            kept = {"_topic": topic, "_kind": "event", "_event_id": event["event_id"]}
            tables["archive"].append({**place, **kept})
    for event, label in zip(log.of(REWARD), ("high", "high", "mid"), strict=True):
        joined = {"reward_event_id": event["event_id"], "reward_range": label}
        tables["experience"].append({**joined, **event})
    return Told(tables)


def judged(log: Logged, lake: Lake) -> Verdict:
    return judge(lake, log, {INFERENCE: ["i1", "i2"], FEEDBACK: ["f1", "f2"]}, defaults=True)


def test_what_is_right_passes() -> None:
    assert judged(logged(), lake_of(logged())) == Verdict()


@pytest.mark.parametrize("table", ["inference", "feedback", "reward", "experience", "archive"])
def test_a_row_that_is_gone_is_lost_and_one_that_is_there_twice_is_doubled(table: str) -> None:
    lake = lake_of(logged())
    row = lake.tables[table].pop()
    assert len(judged(logged(), lake).lost) == 1
    lake.tables[table] += [row, row]
    found = judged(logged(), lake)
    assert (found.lost, len(found.doubled)) == ([], 1)


@pytest.mark.parametrize("topic", [INFERENCE, FEEDBACK])
def test_an_event_that_the_log_lacks_or_has_twice_is_found(topic: str) -> None:
    log = logged()
    (place, event), *_ = log.events[topic].items()
    log.events[topic][0, 9] = event
    assert judged(log, lake_of(log)).doubled
    del log.events[topic][0, 9], log.events[topic][place]
    assert judged(log, lake_of(log)).lost


def test_a_missing_default_a_missing_correction_and_a_wrong_number_are_found() -> None:
    for offset in (1, 2):
        log = logged()
        del log.events[REWARD][0, offset]
        assert judged(log, lake_of(logged())).lost
    log = logged()
    log.events[REWARD][0, 1] = reward("r2", "i1", 0.61, "f1", "f2")
    assert [text for text in judged(log, lake_of(log)).wrong if "0.61 of 2 opinions" in text]


def test_a_reward_of_the_same_opinions_made_twice_is_doubled() -> None:
    log = logged()
    log.events[REWARD][0, 3] = reward("r4", "i1", 1.0, "f1")
    assert [text for text in judged(log, lake_of(logged())).doubled if "reward of i1" in text]


def test_a_plan_is_its_seeds_alone_and_each_fault_has_its_turn() -> None:
    assert draw(7, 3) == draw(7, 3) != draw(8, 3)
    armed = {step.fault.rpartition(":")[0] for n in range(len(FAULTS)) for step in draw(7, n).steps}
    assert {f"{how}:{point}" for how, _, point in FAULTS} <= armed
