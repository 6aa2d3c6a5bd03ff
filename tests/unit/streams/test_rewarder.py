"""Rewarder on a real small lake; the outbox is a hand-written one that keeps what it was given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from afterbay.lakehouse import tables
from afterbay.lakehouse.lake import Lake
from afterbay.lakehouse.positions import SourcePartition
from afterbay.lakehouse.watermarks import Batch
from afterbay.schemas import ids
from afterbay.schemas.errors import Retryable
from afterbay.schemas.events import Cursor, Event, RewardAssigned
from afterbay.streams.outbox import Outbox
from afterbay.streams.rewarder import (
    FEEDBACK_COLUMNS,
    Rewarder,
    RewarderSettings,
    first_rows,
    offsets_of,
)
from tests.support.lakes import NOON, Log
from tests.support.manual_clock import ManualClock

WAIT = timedelta(hours=1)


@dataclass
class KeptOutbox:
    """An outbox whose log is a list; it can fail before it takes anything."""

    events: list[RewardAssigned] = field(default_factory=list)
    cursor: Cursor | None = None
    failing: bool = False

    def open(self) -> Cursor | None:
        return self.cursor

    def commit(self, events: Sequence[Event], cursor: Cursor) -> None:
        if self.failing:
            raise Retryable("outbox: away")
        self.events += cast(list[RewardAssigned], list(events))
        self.cursor = cursor

    def close(self) -> None:
        pass


@dataclass
class Loop:
    """Tables, clock and outbox around a rewarder that may be started again."""

    lake: Lake
    outbox: KeptOutbox = field(default_factory=KeptOutbox)
    clock: ManualClock = field(default_factory=ManualClock)
    ends: dict[SourcePartition, int] = field(default_factory=dict)
    batch_rows: int = 5_000

    def __post_init__(self) -> None:
        self.feedback = Log(self.lake, "feedback.received.v2", "feedback")
        self.inference = Log(self.lake, "inference.completed.v2", "inference")
        self.rewarder = self.start()

    def start(self) -> Rewarder:
        self.rewarder = Rewarder(
            lake=self.lake,
            outbox=cast(Outbox, self.outbox),
            clock=self.clock,
            end_offsets=lambda: self.ends or {self.feedback.source: self.feedback.next},
            settings=RewarderSettings(reward_wait=WAIT, batch_rows=self.batch_rows),
        )
        self.rewarder.open()
        return self.rewarder

    def say(self, inference_id: str, score: float | None, **values: Any) -> None:
        one = {"inference_id": inference_id, "score": score, "idempotency_key": None}
        event_id = {"event_id": ids.new_id(self.clock.now()), "source": "person"}
        self.feedback.put(one | event_id | values, ts=self.clock.now())

    def complete(self, at: datetime = NOON) -> str:
        inference_id = ids.new_id(at)
        self.inference.put({"event_id": inference_id, "completed_at": at}, ts=at)
        return inference_id

    def nothing(self) -> Any:
        """A read of feedback that found no row."""
        schema = tables.arrow_schema("feedback").empty_table()
        return schema.select(list(FEEDBACK_COLUMNS))

    def rewards(self) -> list[tuple[str, float, int, str]]:
        return [
            (e.inference_id, round(e.reward, 6), e.feedback_count, e.cause)
            for e in self.outbox.events
        ]


@pytest.fixture
def loop(tmp_path: Path) -> Loop:
    lake = Lake(str(tmp_path))
    tables.ensure(lake)
    return Loop(lake)


def test_feedback_becomes_a_reward_once(loop: Loop) -> None:
    one = loop.complete()
    loop.say(one, 1.0)
    loop.rewarder.drain()
    loop.rewarder.drain()
    assert loop.rewards() == [(one, 1.0, 1, "feedback")]


def test_later_feedback_makes_a_corrected_reward_of_all_feedback(loop: Loop) -> None:
    one = loop.complete()
    loop.say(one, 1.0, source="rule")
    loop.rewarder.drain()
    loop.say(one, 0.0, source="person")
    loop.rewarder.drain()
    assert loop.rewards() == [(one, 1.0, 1, "feedback"), (one, 0.2, 2, "feedback")]


def test_one_caller_and_key_counts_once_by_the_lowest_offset(loop: Loop) -> None:
    one = loop.complete()
    for score in (1.0, 0.0):
        loop.say(one, score, caller="c", idempotency_key="k")
    loop.rewarder.drain()
    assert loop.rewards() == [(one, 1.0, 1, "feedback")]


def test_a_doubled_event_counts_once(loop: Loop) -> None:
    one = loop.complete()
    for score in (1.0, 0.0):
        loop.say(one, score, event_id="same")
    loop.rewarder.drain()
    assert loop.rewards() == [(one, 1.0, 1, "feedback")]


def test_feedback_without_a_score_makes_no_reward_but_moves_the_cursor(loop: Loop) -> None:
    loop.say(loop.complete(), None)
    loop.rewarder.drain()
    assert loop.rewards() == []
    assert loop.outbox.cursor is not None
    assert [o.next_offset for o in loop.outbox.cursor.offsets] == [1]


def test_a_restart_goes_on_where_the_cursor_stands(loop: Loop) -> None:
    one, two = loop.complete(), loop.complete()
    loop.say(one, 1.0)
    loop.rewarder.drain()
    loop.start()
    loop.say(two, 0.0)
    loop.rewarder.drain()
    assert [r[0] for r in loop.rewards()] == [one, two]


def test_what_was_not_committed_is_done_again(loop: Loop) -> None:
    one = loop.complete()
    loop.say(one, 1.0)
    loop.outbox.failing = True
    with pytest.raises(Retryable):
        loop.rewarder.step()
    loop.outbox.failing = False
    loop.rewarder.drain()
    assert loop.rewards() == [(one, 1.0, 1, "feedback")]


def test_a_backlog_is_taken_in_bounded_batches(loop: Loop) -> None:
    loop.batch_rows = 2
    loop.start()
    done = [loop.complete() for _ in range(5)]
    for one in done:
        loop.say(one, 1.0)
    loop.rewarder.step()
    assert sorted(r[0] for r in loop.rewards()) == sorted(done[:2])
    loop.rewarder.drain()
    assert sorted(r[0] for r in loop.rewards()) == sorted(done)


def test_no_feedback_within_the_wait_gives_the_default(loop: Loop) -> None:
    one = loop.complete()
    loop.clock.advance(WAIT.total_seconds())
    loop.rewarder.drain()
    assert loop.rewards() == []
    loop.clock.advance(1)
    loop.rewarder.drain()
    loop.rewarder.drain()
    assert loop.rewards() == [(one, 0.5, 0, "default")]


@pytest.mark.parametrize("again", ["the same call", "taken up anew"])
def test_a_default_that_was_not_committed_is_still_due(loop: Loop, again: str) -> None:
    loop.complete()
    loop.clock.advance(WAIT.total_seconds() + 1)
    loop.rewarder.step()  # the feedback partition is idle, which the first look finds out
    loop.outbox.events.clear()
    three = loop.complete(loop.clock.now())
    loop.clock.advance(WAIT.total_seconds() + 1)
    loop.outbox.failing = True
    with pytest.raises(Retryable):
        loop.rewarder.step()
    loop.outbox.failing = False
    if again == "taken up anew":
        loop.rewarder.open()
    loop.rewarder.drain()
    assert loop.rewards() == [(three, 0.5, 0, "default")]


def test_a_feedback_table_that_stands_back_for_a_while_is_not_rewarded_again(loop: Loop) -> None:
    one = loop.complete()
    loop.say(one, 1.0)
    loop.rewarder.drain()
    after = offsets_of(cast(Cursor, loop.outbox.cursor))
    assert first_rows(Batch(loop.nothing(), dict.fromkeys(after, 0), 1), after, 5)[1] == after


def test_feedback_within_the_wait_spares_the_default(loop: Loop) -> None:
    one = loop.complete()
    loop.say(one, 0.0)
    loop.clock.advance(2 * WAIT.total_seconds())
    loop.rewarder.drain()
    assert loop.rewards() == [(one, 0.0, 1, "feedback")]


@pytest.mark.parametrize("first", [{"source": "stranger"}, {"source": "rule", "score": None}])
def test_an_opinion_that_counts_for_nothing_spares_no_default(
    loop: Loop, first: dict[str, Any]
) -> None:
    one = loop.complete()
    key = {"caller": "c", "idempotency_key": "k"}
    loop.say(one, **({"score": 1.0} | first | key))
    loop.say(one, 1.0, source="person", **key)  # a retry: only the first of a key counts
    loop.clock.advance(WAIT.total_seconds() + 1)
    loop.rewarder.drain()
    loop.rewarder.drain()
    assert loop.rewards() == [(one, 0.5, 0, "default")]


def test_a_key_counts_once_for_each_inference_whatever_is_read_together(loop: Loop) -> None:
    one, two = loop.complete(), loop.complete()
    for about in (one, two):
        loop.say(about, 1.0, caller="c", idempotency_key="k")
    loop.rewarder.drain()
    assert sorted(r[0] for r in loop.rewards()) == sorted([one, two])


def test_feedback_after_the_default_supersedes_it_and_is_late(loop: Loop) -> None:
    one = loop.complete()
    loop.clock.advance(2 * WAIT.total_seconds())
    loop.rewarder.drain()
    loop.say(one, 1.0)
    loop.rewarder.drain()
    assert loop.rewards() == [(one, 0.5, 0, "default"), (one, 1.0, 1, "late")]


def test_the_default_waits_while_feedback_is_still_on_its_way_to_the_table(loop: Loop) -> None:
    one = loop.complete()
    loop.ends = {loop.feedback.source: 1}
    loop.clock.advance(2 * WAIT.total_seconds())
    loop.rewarder.drain()
    assert loop.rewards() == []
    loop.say(one, 1.0)
    loop.rewarder.drain()
    assert loop.rewards() == [(one, 1.0, 1, "late")]


def test_the_sweep_does_not_pass_an_inference_that_still_has_time(loop: Loop) -> None:
    slow = loop.complete(NOON + timedelta(minutes=30))
    early = loop.complete(NOON)
    loop.clock.advance(WAIT.total_seconds() + 1)
    loop.rewarder.drain()
    assert loop.rewards() == []
    loop.clock.advance(1_800)
    loop.rewarder.drain()
    assert sorted(r[0] for r in loop.rewards()) == sorted([slow, early])


def test_a_restart_does_not_give_the_default_twice(loop: Loop) -> None:
    one = loop.complete()
    loop.clock.advance(2 * WAIT.total_seconds())
    loop.rewarder.drain()
    loop.start()
    loop.rewarder.drain()
    assert [r[0] for r in loop.rewards()] == [one]
