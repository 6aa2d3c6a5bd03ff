"""Snapshot events go out once, and only for the state they were decided on."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from afterbay.schemas import ids
from afterbay.schemas.clock import SystemClock
from afterbay.schemas.errors import Fenced
from afterbay.schemas.events import Cursor, PolicySnapshot
from afterbay.streams.arms import ArmState
from afterbay.streams.kafka import KafkaAddress
from afterbay.streams.outbox import Outbox
from afterbay.streams.publishing import publish, publish_decided, read_arms

CLOCK = SystemClock()


def told(action: str, snapshot: str, policy: str = "agent") -> PolicySnapshot:
    return PolicySnapshot(
        event_id=ids.new_id(datetime.now(UTC)),
        policy=policy,
        action=action,
        snapshot_id=snapshot,
        digest=snapshot * 8,
        uri=f"snapshots/{snapshot}",
        manifest="{}",
        signature="",
    )


def test_a_run_repeated_publishes_nothing_more(log: KafkaAddress) -> None:
    events = [told("published", "a"), told("promoted", "a")]
    assert publish(log, events, "run-1") == events
    assert publish(log, events, "run-1") == []
    arms = read_arms(log, "agent", CLOCK)
    assert arms.current is not None
    assert arms.current.snapshot_id == "a"
    assert arms.seen == {e.event_id for e in events}


def test_an_event_that_is_out_is_not_written_again_by_another_run(log: KafkaAddress) -> None:
    first, second = told("published", "a"), told("canary", "a")
    publish(log, [first], "run-1")
    assert publish(log, [first, second], "run-2") == [second]


def test_policies_are_folded_apart(log: KafkaAddress) -> None:
    publish(log, [told("promoted", "a")], "run-1")
    publish(log, [told("promoted", "b", "other")], "run-1")
    assert read_arms(log, "agent", CLOCK).snapshots.keys() == {"a"}
    assert read_arms(log, "other", CLOCK).snapshots.keys() == {"b"}


def test_events_of_two_policies_are_not_one_publication(log: KafkaAddress) -> None:
    with pytest.raises(ValueError, match="2 policies"):
        publish(log, [told("promoted", "a"), told("promoted", "b", "other")], "run-1")


def test_a_rule_sees_the_state_it_changes(log: KafkaAddress) -> None:
    publish(log, [told("promoted", "a"), told("canary", "b")], "run-1")

    def promote(arms: ArmState) -> list[PolicySnapshot]:
        return [told("promoted", "b")] if arms.candidate is not None else []

    assert len(publish_decided(log, "agent", "judge-b", promote, CLOCK)) == 1
    assert publish_decided(log, "agent", "judge-b-again", promote, CLOCK) == []


def test_a_publisher_that_was_overtaken_writes_nothing(log: KafkaAddress) -> None:
    def overtaken(arms: ArmState) -> list[PolicySnapshot]:
        publish(log, [told("promoted", "b")], "newer")
        return [told("promoted", "a")]

    with pytest.raises(Fenced):
        publish_decided(log, "agent", "older", overtaken, CLOCK)
    assert read_arms(log, "agent", CLOCK).snapshots.keys() == {"b"}


def test_a_crash_before_the_commit_leaves_the_run_to_be_done(log: KafkaAddress) -> None:
    outbox = Outbox("publisher/agent", log, CLOCK)
    outbox.open()
    outbox.commit([], Cursor(source="publisher/agent", run_id="before"))
    outbox.close()
    assert len(publish(log, [told("promoted", "a")], "run-1")) == 1
