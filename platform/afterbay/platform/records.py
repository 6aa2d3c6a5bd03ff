"""What the gateway writes to the L1 ring and the flusher reads: clear text, in memory only.

In:   the gateway's view of one answered request, or of one feedback
Out:  msgpack bytes (`pack`), and the record again (`unpack`)
Refuses: bytes that are no record, with ValueError that holds no payload
Never: reaches a disk or a log; the flusher redacts, seals and only then makes an event
"""

from __future__ import annotations

import msgspec

from afterbay.schemas.events import Sampling, Segment, ToolCall


class RawInference(msgspec.Struct, frozen=True, kw_only=True, tag="inference"):
    """One answered request. Made by the gateway, read by the flusher.

    Fields of the same name mean what they mean in `InferenceCompleted`; times are microseconds
    since the epoch; session and subject are pseudonyms already.
    """

    event_id: str
    request_id: str
    attempt: int
    session_id: str
    turn: int
    subject: str
    policy: str
    arm: str
    arm_probability: float
    snapshot_id: str
    digest: str
    model: str
    tokenizer: str
    tools: list[str]
    prompt: str
    """Clear text as the policy saw it."""
    response: str
    prompt_ids: list[int] | None
    prompt_ends: list[int] | None
    """End of each prompt token in code points of `prompt`; travels in this record only."""
    response_ids: list[int] | None
    response_ends: list[int] | None
    """End of each response token in code points of `response`."""
    response_logprobs: list[float] | None
    trainable: bool
    untrainable_reason: str | None
    segments: list[Segment]
    sampling: Sampling
    tool_calls: list[ToolCall]
    finish_reason: str
    dispatched_us: int
    started_us: int
    first_token_us: int | None
    completed_us: int
    node_id: str


class RawFeedback(msgspec.Struct, frozen=True, kw_only=True, tag="feedback"):
    """One opinion as it was posted. Made by the gateway, read by the flusher.

    `rater`, `idempotency_key` and `subject` are pseudonyms already; label and comment are clear.
    """

    event_id: str
    inference_id: str
    caller: str
    source: str
    rater: str
    score: float | None
    label: str | None
    comment: str | None
    step: int | None
    given_at_us: int | None
    idempotency_key: str | None
    subject: str | None


RawRecord = RawInference | RawFeedback

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[RawRecord] = msgspec.msgpack.Decoder(RawRecord)


def pack(record: RawRecord) -> bytes:
    """Bytes of one ring record."""
    return _encoder.encode(record)


def unpack(data: bytes | memoryview) -> RawRecord:
    """The record in `data`; ValueError without payload if it is none."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, msgspec.ValidationError):
        raise ValueError(f"ring record of {len(data)} bytes is no inference or feedback") from None
