"""What becomes of messages: good ones are rows, bad ones dead letters, none costs another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

import msgspec
import pytest

from afterbay.lakehouse import archive, tables
from afterbay.lakehouse.archive import Message
from afterbay.lakehouse.positions import SourcePartition
from afterbay.schemas import ids
from afterbay.schemas.codec import decode_record, encode
from afterbay.schemas.events import (
    Event,
    FeedbackReceived,
    Finding,
    InferenceCompleted,
    RewardAssigned,
    Sampling,
    ToolCall,
)
from afterbay.streams.intake import Intake, past, take_in
from afterbay.streams.keys.sealer import Place, Sealed
from afterbay.streams.pii import Redactor
from afterbay.streams.pii.detect import DetectorTimeout, Match

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)
FEEDBACK = SourcePartition("feedback.received.v2", "id", 3)
INFERENCE = SourcePartition("inference.completed.v2", "id", 1)
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


def inference(**fields: Any) -> InferenceCompleted:
    plain = InferenceCompleted(
        event_id=ids.new_id(NOW),
        request_id=ids.new_id(NOW),
        attempt=1,
        session_id="s",
        turn=1,
        subject="p" * 32,
        policy="p",
        arm="current",
        arm_probability=1.0,
        snapshot_id="s",
        digest="d",
        model="m",
        tokenizer="t",
        prompt="hello",
        response="hi",
        prompt_ids=(1, 2),
        response_ids=(3,),
        response_logprobs=(-0.5,),
        loss_mask=(1,),
        trainable=True,
        altered=False,
        sampling=Sampling(temperature=1, top_p=1, top_k=0, min_p=0, logprobs_mode="processed"),
        finish_reason="stop",
        dispatched_at=NOW,
        started_at=NOW,
        completed_at=NOW,
        node_id="n",
    )
    return msgspec.structs.replace(plain, **fields)


def take(
    source: SourcePartition, *values: Event | bytes | None, redactor: Redactor | None = None
) -> tuple[Intake, KeptSeals]:
    messages = [
        Message(n, NOW_MS, b"k", (), encode(v) if isinstance(v, Event) else v, None)
        for n, v in enumerate(values)
    ]
    seals = KeptSeals()
    return take_in(source, messages, redactor or Redactor(), seals), seals


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


def test_personal_data_that_came_through_is_masked_sealed_and_archived_redacted() -> None:
    events = [feedback(comment="fine"), feedback(comment=f"call {PHONE} now", subject="s" * 32)]
    found, seals = take(FEEDBACK, *events)
    assert reasons(found) == {}
    (row,) = [r for r in found.rows.to_pylist() if r["event_id"] == events[1].event_id]
    assert row["comment"] == "call [phone] now"
    (finding,) = row["pii"]
    assert (finding["field"], finding["ordinal"], finding["kind"]) == ("comment", 0, "phone")
    assert row["comment"][finding["start"] : finding["end"]] == "[phone]"
    assert seals.sealed == [
        (Place(events[1].event_id, "comment", 0, "phone", "s" * 32), PHONE.encode())
    ]
    stored = archive.rows(FEEDBACK, 0, found.archived).to_pylist()
    assert [r["_kind"] for r in stored] == ["event", "event"]
    assert stored[0]["_bytes"] == encode(events[0])
    assert stored[0]["_bytes_sha256"] is None
    event = decode_record(stored[1]["_bytes"], FEEDBACK.topic)
    assert event == {name: row[name] for name in row if name[0] != "_" and name != "date"}
    assert stored[1]["_bytes_sha256"] == sha256(encode(events[1])).digest()
    assert found.redacted == 1


def test_a_feedback_without_a_subject_is_sealed_under_its_inference() -> None:
    event = feedback(comment=f"call {PHONE}")
    _, seals = take(FEEDBACK, event)
    ((place, _),) = seals.sealed
    assert place.subject == f"inference:{event.inference_id}"


def test_every_text_of_an_inference_is_searched_and_its_ids_go() -> None:
    event = inference(
        prompt=f"我的手机是{PHONE}，邮箱 a.b@example.com",
        response="好的",
        tools=("one", f"call_{PHONE}", f"to {PHONE}"),
        tool_calls=(
            ToolCall(id="1", name="x", arguments="{}"),
            ToolCall(id="2", name="x", arguments='{"n": "' + PHONE + '", "m": 13812345678}'),
        ),
    )
    found, seals = take(INFERENCE, inference(), event)
    rows = {r["event_id"]: r for r in found.rows.to_pylist()}
    row = rows.pop(event.event_id)
    assert row["prompt"] == "我的手机是[phone]，邮箱 [email]"
    assert row["tools"][2] == "to [phone]"
    assert row["tool_calls"][1]["arguments"] == '{"n": "[phone]", "m": "[phone]"}'
    assert PHONE not in str(row | {"tools": row["tools"][2:]})
    assert [f["ordinal"] for f in row["pii"]] == list(range(len(seals.sealed)))
    assert {f["field"] for f in row["pii"]} >= {"prompt", "tools[2]", "tool_calls[1].arguments"}
    gone = ("prompt_ids", "response_ids", "response_logprobs", "loss_mask")
    assert [row[name] for name in gone] == [None] * 4
    assert (row["trainable"], row["untrainable_reason"]) == (False, "redacted_in_sink")
    (clean,) = rows.values()
    assert (clean["prompt_ids"], clean["trainable"], clean["pii"]) == ([1, 2], True, [])


def test_earlier_findings_keep_their_ordinals_and_move_with_the_text() -> None:
    cut = Finding(
        field="comment", ordinal=4, kind="email", start=20, end=27, key_id="k", ciphertext="c"
    )
    other = Finding(
        field="label", ordinal=6, kind="email", start=0, end=7, key_id="k", ciphertext="d"
    )
    event = feedback(comment=f"call {PHONE} or [email]", label="[email]", pii=(cut, other))
    found, seals = take(FEEDBACK, event)
    ((row),) = found.rows.to_pylist()
    assert row["comment"] == "call [phone] or [email]"
    email, label, phone = row["pii"]
    assert (email["ordinal"], label["ordinal"], phone["ordinal"]) == (4, 6, 7)
    assert row["comment"][email["start"] : email["end"]] == "[email]"
    assert (email["ciphertext"], label["start"]) == ("c", 0)
    assert len(seals.sealed) == 1


def test_what_was_redacted_here_is_not_found_again() -> None:
    first, _ = take(FEEDBACK, feedback(comment=f"call {PHONE} and [phone]"))
    again, seals = take(FEEDBACK, first.archived[0].value)
    assert (again.redacted, seals.sealed) == (0, [])
    assert again.rows.equals(first.rows)


class Broken:
    """A detector that looks at every text and fails on each."""

    def candidates(self, texts: Sequence[str]) -> list[bool]:
        return [bool(text) for text in texts]

    def find(self, text: str) -> list[Match]:
        raise DetectorTimeout("too long")


def test_a_text_that_cannot_be_searched_is_a_dead_letter() -> None:
    found, seals = take(FEEDBACK, feedback(), feedback(comment="x"), redactor=Redactor(Broken()))
    assert reasons(found) == {1: "redaction_failed"}
    assert found.rows.num_rows == 1
    assert [place.kind for place, _ in seals.sealed] == ["dead"]


def test_what_is_dead_for_another_reason_is_not_stored_redacted() -> None:
    event = feedback(comment=f"call {PHONE}", event_id="no id")
    found, _ = take(FEEDBACK, event, feedback(comment=f"call {PHONE}"))
    assert reasons(found) == {0: "event_id"}
    stored = archive.rows(FEEDBACK, 0, found.archived).to_pylist()
    assert stored[0]["_bytes"] is None
    assert stored[0]["_bytes_sha256"] == sha256(encode(event)).digest()
    assert (found.redacted, found.rows.num_rows) == (1, 1)


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


def test_a_number_wider_than_its_column_is_a_dead_letter_and_stops_nobody() -> None:
    wide = Sampling(temperature=1, top_p=1, top_k=2**40, min_p=0, logprobs_mode="processed")
    found, _ = take(INFERENCE, inference(), inference(sampling=wide), inference())
    assert reasons(found) == {1: "out_of_range"}
    assert found.rows.num_rows == 2
