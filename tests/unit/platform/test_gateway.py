"""The gateway's services with a real ring and a hand-written bus."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from afterbay.platform.bus import (
    Began,
    Ended,
    Generate,
    InferenceAssigned,
    InferenceRequest,
    NodeToken,
    Token,
)
from afterbay.platform.gateway.chat import Chat
from afterbay.platform.gateway.dispatch import Dispatcher, Silent
from afterbay.platform.gateway.errors import ApiError
from afterbay.platform.gateway.feedback import Feedback
from afterbay.platform.gateway.journal import Journal
from afterbay.platform.gateway.wire import read_chat, read_feedback
from afterbay.platform.records import RawFeedback, RawInference, unpack
from afterbay.platform.ring import Ring, discard
from afterbay.schemas import ids
from afterbay.streams.keys.pseudonyms import Pseudonyms
from tests.support.manual_clock import ManualClock

CHAT = (
    b'{"model":"bank-agent","messages":[{"role":"user","content":"hi"}],'
    b'"tools":[{"type":"function","function":{"name":"refund"}}]}'
)
BEGAN = Began(
    node_id="node-1",
    snapshot_id="s1",
    digest="d1",
    tokenizer="t",
    prompt="hi",
    prompt_ids=(1, 2),
    prompt_ends=(1, 2),
    started_us=1,
    first_token_us=2,
)
TOKENS = (Token(3, -0.5, "ref", 3), Token(4, -0.25, "und", 6))
ENDED = Ended(finish_reason="tool_calls", tool="refund", completed_us=9)


def said(**fields: Any) -> NodeToken:
    return NodeToken(request_id="r", attempt=1, **fields)


WHOLE = [said(began=BEGAN, tokens=TOKENS, ended=ENDED)]
Script = list[NodeToken | type[Silent]]


@dataclass
class ScriptedBus:
    """Answers each attempt with what the script says; records who was excluded."""

    attempts: list[Script]
    excluded: list[tuple[str, ...]] = field(default_factory=list)
    error: str | None = None
    between: Callable[[], None] = lambda: None

    async def assign(self, ask: InferenceRequest) -> InferenceAssigned:
        self.excluded.append(ask.exclude)
        return InferenceAssigned(
            request_id=ask.request_id,
            attempt=ask.attempt,
            error=self.error,
            arm="current",
            probability=0.5,
            snapshot_id="s1",
            digest="d1",
            node_id=f"node-{ask.attempt}",
            address=f"inproc://{ask.attempt}",
        )

    async def generate(self, _address: str, _ask: Generate) -> AsyncIterator[NodeToken]:
        for message in self.attempts.pop(0):
            if isinstance(message, type):
                raise message
            yield message
            self.between()
            await asyncio.sleep(0)


@dataclass
class Desk:
    """A chat service and a feedback service over one ring."""

    ring: Ring
    bus: ScriptedBus

    def __post_init__(self) -> None:
        self.clock = ManualClock()
        journal, names = Journal(self.ring), Pseudonyms(bytes(32))
        self.feedback = Feedback(journal, names, self.clock)
        self.chat = Chat(
            dispatcher=cast(Dispatcher, self.bus),
            journal=journal,
            pseudonyms=names,
            clock=self.clock,
            policy="bank-agent",
        )

    def ask(self, body: bytes = CHAT) -> dict[str, Any]:
        request = read_chat(body)
        return asyncio.run(self.chat.answer(self.chat.admit(request, None), len(body)))

    def stream(self) -> list[dict[str, Any]]:
        async def all_chunks() -> list[dict[str, Any]]:
            admitted = self.chat.admit(read_chat(CHAT), None)
            return [chunk async for chunk in self.chat.stream(admitted, len(CHAT))]

        return asyncio.run(all_chunks())

    @property
    def records(self) -> list[RawInference | RawFeedback]:
        return [unpack(data) for _, data in self.ring.read()]


@pytest.fixture
def ring(tmp_path: Path) -> Iterator[Ring]:
    with Ring.create(tmp_path / "l1", 1 << 20) as made:
        yield made
    discard(tmp_path / "l1")


def inference(desk: Desk) -> RawInference:
    (record,) = desk.records
    assert isinstance(record, RawInference)
    return record


def test_an_answer_is_recorded_as_it_was_given(ring: Ring) -> None:
    desk = Desk(ring, ScriptedBus([[*WHOLE]]))
    answer = desk.ask()
    record = inference(desk)
    assert answer["id"] == f"chatcmpl-{record.event_id}"
    call = answer["choices"][0]["message"]["tool_calls"][0]
    assert (call["function"]["name"], record.response) == ("refund", "refund")
    assert record.response_logprobs == [-0.5, -0.25]
    assert (record.arm_probability, record.attempt, record.trainable) == (0.5, 1, True)
    assert ring.fill < 0.1, "room that was reserved and not used is given back"


@pytest.mark.parametrize("trouble", [[Silent], [said(refused="busy")], [said(refused="digest")]])
def test_another_node_is_asked_while_nothing_was_said(ring: Ring, trouble: Script) -> None:
    desk = Desk(ring, ScriptedBus([trouble, [*WHOLE]]))
    desk.ask()
    assert desk.bus.excluded == [(), ("node-1",)]
    assert inference(desk).attempt == 2


def test_when_nobody_answers_nothing_is_recorded_and_the_room_is_free_again(ring: Ring) -> None:
    desk = Desk(ring, ScriptedBus([[Silent], [Silent], [Silent]]))
    with pytest.raises(ApiError) as refused:
        desk.ask()
    assert (refused.value.status, refused.value.retry) == (503, True)
    assert desk.records == []
    assert ring.used == 0


def test_an_answer_that_broke_off_is_recorded_as_not_trainable(ring: Ring) -> None:
    desk = Desk(ring, ScriptedBus([[said(began=BEGAN, tokens=TOKENS[:1]), Silent]]))
    with pytest.raises(ApiError) as told:  # else the client would take it for the whole answer
        desk.stream()
    assert told.value.status == 502
    record = inference(desk)
    assert record.finish_reason == "error"
    assert (record.response, record.trainable, record.untrainable_reason) == (
        "ref",
        False,
        "interrupted",
    )


@pytest.mark.parametrize(
    "field",
    [
        b'"top_k":2147483648',
        b'"top_k":4611686018427387904',
        b'"max_tokens":99999999999',
        b'"tool_choice":"none"',
        b'"tools":[' + b",".join([b'{"type":"function","function":{"name":"a"}}'] * 129) + b"]",
    ],
)
def test_what_no_table_or_node_can_hold_is_refused(field: bytes) -> None:
    with pytest.raises(ApiError) as refused:
        read_chat(CHAT[:-1] + b"," + field + b"}")
    assert refused.value.status == 400


def test_sampling_too_cold_for_a_float_is_greedy_and_logged_so() -> None:
    found = read_chat(CHAT[:-1] + b',"temperature":1e-30,"top_p":1e-46}').sampling
    assert (found.temperature, found.top_p) == (0.0, 1e-6)


@pytest.mark.parametrize("at", ["0001-01-01T00:00:00+12:00", "9999-12-31T23:59:59-12:00"])
def test_a_time_that_utc_cannot_tell_is_refused(at: str) -> None:
    with pytest.raises(ApiError) as refused:
        read_feedback(feedback_body(given_at=at))
    assert refused.value.status == 422


def test_the_last_bytes_of_a_stream_come_after_its_record(ring: Ring) -> None:
    desk = Desk(ring, ScriptedBus([[said(began=BEGAN, tokens=TOKENS[:1]), *_rest()]]))

    async def watch() -> list[tuple[str | None, int]]:
        seen = []
        admitted = desk.chat.admit(read_chat(CHAT), None)
        async for chunk in desk.chat.stream(admitted, len(CHAT)):
            seen.append((chunk["choices"][0]["finish_reason"], len(desk.records)))
        return seen

    seen = asyncio.run(watch())
    assert seen[0] == (None, 0)
    assert seen[-1] == ("tool_calls", 1)


def _rest() -> list[NodeToken]:
    return [said(tokens=TOKENS[1:], ended=ENDED)]


def test_a_client_that_leaves_does_not_end_its_answer(ring: Ring) -> None:
    desk = Desk(ring, ScriptedBus([[said(began=BEGAN, tokens=TOKENS[:1]), *_rest()]]))

    async def leave() -> None:
        admitted = desk.chat.admit(read_chat(CHAT), None)
        chunks = desk.chat.stream(admitted, len(CHAT))
        await anext(chunks)
        with contextlib.suppress(GeneratorExit):
            await cast(Any, chunks).aclose()
        await desk.chat.finish(5)

    asyncio.run(leave())
    assert inference(desk).response == "refund"


def test_without_room_in_the_ring_nothing_is_begun(tmp_path: Path) -> None:
    with Ring.create(tmp_path / "small", 4096) as small:
        desk = Desk(small, ScriptedBus([]))
        with pytest.raises(ApiError, match="slower") as refused:
            desk.ask()
        assert refused.value.status == 503
        assert desk.bus.excluded == []
    discard(tmp_path / "small")


def test_why_nobody_can_answer_is_told(ring: Ring) -> None:
    desk = Desk(ring, ScriptedBus([], error="no_snapshot"))
    with pytest.raises(ApiError, match="no_snapshot"):
        desk.ask()


def test_a_greedy_answer_is_not_trainable(ring: Ring) -> None:
    desk = Desk(ring, ScriptedBus([[*WHOLE]]))
    desk.ask(CHAT[:-1] + b',"temperature":0}')
    assert inference(desk).untrainable_reason == "greedy"


def test_without_tools_the_answer_is_text(ring: Ring) -> None:
    desk = Desk(ring, ScriptedBus([[*WHOLE]]))
    body = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'
    (choice,) = desk.ask(body)["choices"]
    assert choice["message"]["content"] == "refund"
    assert choice["finish_reason"] == "stop"
    assert inference(desk).tool_calls == []


def test_the_session_comes_from_header_then_metadata_and_the_person_from_the_session(
    ring: Ring,
) -> None:
    chat = Desk(ring, ScriptedBus([])).chat
    metadata = read_chat(CHAT[:-1] + b',"metadata":{"session_id":"m"}}')
    header = chat.admit(metadata, "h")
    assert header.session == "h"
    assert chat.admit(metadata, None).session == "m"
    new, other = (chat.admit(read_chat(CHAT), None) for _ in range(2))
    assert new.session_id != other.session_id
    user = read_chat(CHAT[:-1] + b',"user":"u","safety_identifier":"s"}')
    named = [chat.admit(user, name).subject for name in ("h", "i")]
    assert named[0] == named[1]
    assert header.session_id not in {"h", named[0]}


def feedback_body(**fields: Any) -> bytes:
    import msgspec

    plain = {"inference_id": "x", "source": "person", "score": 1.0}
    return msgspec.json.encode({**plain, **fields})


def test_feedback_is_kept_under_pseudonyms(ring: Ring) -> None:
    desk = Desk(ring, ScriptedBus([]))
    about = ids.new_id(desk.clock.now())
    body = feedback_body(inference_id=f"chatcmpl-{about}", rater="li", subject="wang")
    feedback_id = desk.feedback.take("key-1", read_feedback(body), "once")
    (record,) = desk.records
    assert isinstance(record, RawFeedback)
    assert (record.event_id, record.inference_id) == (feedback_id, about)
    assert not {"li", "wang", "once"} & {record.rater, record.subject, record.idempotency_key}


def test_the_same_key_of_the_same_caller_is_kept_once(ring: Ring) -> None:
    desk = Desk(ring, ScriptedBus([]))
    body = read_feedback(feedback_body(inference_id=ids.new_id(desk.clock.now())))
    given = [desk.feedback.take(caller, body, "once") for caller in ("a", "a", "b")]
    assert given[0] == given[1] != given[2]
    assert len(desk.records) == 2


@pytest.mark.parametrize("seconds", [7 * 86_400 + 1, -61])
def test_feedback_about_another_time_is_refused(ring: Ring, seconds: int) -> None:
    desk = Desk(ring, ScriptedBus([]))
    about = ids.new_id(desk.clock.now())
    desk.clock.advance(seconds)
    with pytest.raises(ApiError) as refused:
        desk.feedback.take("a", read_feedback(feedback_body(inference_id=about)), None)
    assert refused.value.status == 422


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"\xff",
        b'{"model":"m","messages":[]}',
        b'{"model":"m","messages":[{"role":"SECRET","content":"x"}]}',
        CHAT[:-1] + b',"n":2}',
        CHAT[:-1] + b',"temperature":9}',
        CHAT[:-1] + b',"top_p":0}',
        b'{"model":"m","messages":[{"role":"user","content":1}]}',
    ],
)
def test_what_is_no_chat_request_is_refused_without_its_content(body: bytes) -> None:
    with pytest.raises(ApiError) as refused:
        read_chat(body)
    assert refused.value.status == 400
    assert "SECRET" not in str(refused.value)


def test_unknown_chat_fields_are_let_pass_and_content_may_come_in_parts() -> None:
    request = read_chat(
        b'{"model":"m","future":1,"messages":[{"role":"user","content":'
        b'[{"type":"text","text":"a"},{"type":"image_url"},{"type":"text","text":"b"}]}]}'
    )
    assert request.messages[0].plain()["content"].split() == ["a", "b"]
    assert request.turn == 1
