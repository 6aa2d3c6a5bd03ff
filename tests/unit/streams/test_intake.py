"""What becomes of messages: good ones are rows, bad ones dead letters, none costs another."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from afterbay.lakehouse import archive, tables
from afterbay.lakehouse.archive import Message
from afterbay.lakehouse.positions import SourcePartition
from afterbay.schemas import ids
from afterbay.schemas.codec import encode
from afterbay.schemas.events import Event, FeedbackReceived, Finding, RewardAssigned
from afterbay.streams.intake import Intake, past, take_in
from afterbay.streams.keys.sealer import Place, Sealed
from afterbay.streams.pii import Redactor

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)
FEEDBACK = SourcePartition("feedback.received.v2", "id", 3)
REWARD = SourcePartition("reward.assigned.v2", "id", 0)
PHONE = "13812345678"


@dataclass
class KeptSeals:
    """A sealer that shows what it was given."""

    sealed: list[tuple[Place, bytes]] = field(default_factory=list)

    def seal(self, place: Place, plaintext: bytes) -> Sealed:
        self.sealed.append((place, plaintext))
        return Sealed("key", "sealed")

    def commit(self) -> None:
        pass


def feedback(**fields: Any) -> FeedbackReceived:
    plain = FeedbackReceived(
        event_id=ids.new_id(NOW),
        inference_id=ids.new_id(NOW),
        caller="c",
        source="person",
        rater="r",
        score=1.0,
    )
    return msgspec.structs.replace(plain, **fields)


def reward(value: float) -> RewardAssigned:
    return RewardAssigned(
        event_id=ids.new_id(NOW),
        inference_id=ids.new_id(NOW),
        reward=value,
        function_id="f",
        generation=1,
        feedback_count=1,
        cause="feedback",
    )


def take(source: SourcePartition, *values: Event | bytes | None) -> tuple[Intake, KeptSeals]:
    messages = [
        Message(n, NOW_MS, b"k", (), encode(v) if isinstance(v, Event) else v, None)
        for n, v in enumerate(values)
    ]
    seals = KeptSeals()
    return take_in(source, messages, Redactor(), seals), seals


def reasons(found: Intake) -> dict[int, str]:
    offsets, why = (found.dead.column(name).to_pylist() for name in ("_offset", "reason"))
    return dict(zip(offsets, why, strict=True))


def test_good_events_become_rows_with_their_place_and_date() -> None:
    events = [feedback(), feedback(comment="thanks")]
    found, _ = take(FEEDBACK, *events)
    rows = found.rows.to_pylist()
    assert [row["event_id"] for row in rows] == [event.event_id for event in events]
    assert {(r["_topic"], r["_topic_id"], r["_partition"]) for r in rows} == {
        (FEEDBACK.topic, "id", 3)
    }
    assert [row["_offset"] for row in rows] == [0, 1]
    assert {row["date"] for row in rows} == {"2026-03-01"}
    assert found.rows.schema.equals(tables.arrow_schema("feedback"))
    assert found.dead.num_rows == 0
    assert [m.event_id for m in found.archived] == [event.event_id for event in events]


def test_each_bad_message_is_a_dead_letter_and_its_neighbours_are_rows() -> None:
    good = [feedback() for _ in range(3)]
    bad: dict[str, Event | bytes | None] = {
        "tombstone": None,
        "short": b"\xc3\x01ab",
        "magic": b"\x00\x00\x00\x00\x01" + encode(good[0]),
        "fingerprint": b"\xc3\x01" + bytes(8) + b"xx",
        "undecodable": encode(good[0])[:-3],
        "trailing": encode(good[0]) + b"\0",
        "event_id": feedback(event_id="no id"),
        "event_time": feedback(inference_id=ids.new_id(NOW - timedelta(days=8))),
    }
    found, seals = take(FEEDBACK, good[0], *bad.values(), *good[1:])
    assert reasons(found) == dict(enumerate(bad, start=1))
    assert found.rows.column("_offset").to_pylist() == [0, len(bad) + 1, len(bad) + 2]
    assert [m.dead for m in found.archived] == [False, *[True] * len(bad), False, False]
    assert len(seals.sealed) == len(bad)


@pytest.mark.parametrize("at", [datetime(1970, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)])
def test_an_event_far_from_the_brokers_time_is_dead(at: datetime) -> None:
    found, _ = take(FEEDBACK, feedback(inference_id=ids.new_id(at)))
    assert reasons(found) == {0: "event_time"}


@pytest.mark.parametrize("value", [math.nan, -0.1, 1.1, math.inf])
def test_a_reward_that_is_no_reward_is_dead(value: float) -> None:
    found, _ = take(REWARD, reward(0.5), reward(value))
    assert reasons(found) == {1: "out_of_range"}
    assert found.rows.num_rows == 1


def test_personal_data_that_came_through_is_dead_and_sealed() -> None:
    found, seals = take(FEEDBACK, feedback(comment=f"call {PHONE}"), feedback(comment="call me"))
    assert reasons(found) == {0: "pii_found"}
    assert PHONE not in str(found.dead.to_pylist())
    ((place, plaintext),) = seals.sealed
    assert PHONE.encode() in plaintext
    assert place.subject == "deadletter:2026-03-01"


def test_what_was_cut_out_before_is_not_found_again() -> None:
    cut = Finding(
        field="comment", ordinal=0, kind="phone", start=5, end=12, key_id="k", ciphertext="c"
    )
    literal = feedback(comment="we write [phone] for a number")
    found, _ = take(FEEDBACK, feedback(comment="call [phone] now", pii=(cut,)), literal)
    assert reasons(found) == {}


def test_the_same_message_gives_the_same_dead_letter_whoever_reads_it() -> None:
    (one, _), (two, _) = (take(FEEDBACK, b"broken") for _ in range(2))
    assert one.dead.equals(two.dead)
    assert ids.date_label(one.dead.column("event_id")[0].as_py()) == "2026-03-01"


def test_an_archive_is_made_of_good_and_dead_alike() -> None:
    found, _ = take(FEEDBACK, feedback(), b"broken", feedback())
    rows = archive.rows(FEEDBACK, 0, found.archived)
    assert rows.column("_kind").to_pylist() == ["event", "dead", "event"]
    assert rows.column("_bytes").to_pylist()[1] is None


def test_a_table_that_is_ahead_takes_only_what_it_has_not() -> None:
    found, _ = take(FEEDBACK, *(feedback() for _ in range(4)))
    assert past(found.rows, 3).column("_offset").to_pylist() == [3]
    assert past(found.rows, 9).num_rows == 0


def test_no_message_is_no_work() -> None:
    found, _ = take(FEEDBACK)
    assert (found.rows.num_rows, found.dead.num_rows, found.archived) == (0, 0, ())
