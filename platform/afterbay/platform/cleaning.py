"""Make events of what the gateway wrote: every value of personal data cut out and sealed.

In:   bytes of L1 ring records, in order
Out:  one event for each: `InferenceCompleted`, `FeedbackReceived`, or, where redaction failed or
      the bytes are no record, a `DeadLetter` that holds them sealed
Refuses: nothing; what cannot be cleaned is quarantined, and nothing passes unseen
Never: puts a clear value into an event, an error or a log
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from afterbay.platform.records import RawFeedback, RawInference, RawRecord, unpack
from afterbay.schemas import ids
from afterbay.schemas.clock import Clock, from_micros
from afterbay.schemas.events import (
    DeadLetter,
    Event,
    FeedbackReceived,
    Finding,
    InferenceCompleted,
    ToolCall,
)
from afterbay.streams.keys.sealer import Place, Sealer
from afterbay.streams.letters import FLUSHER, seal_record
from afterbay.streams.pii import Failed, Redacted, Redactor, Span
from afterbay.streams.pii.json_text import attempt_json
from afterbay.streams.pii.tokens import MASK_ID, MaskedIds, mask_ids

IDS_KIND = "token_ids"
QUARANTINE = "quarantine"
"""Subject under which a record is sealed whose own subject cannot be read."""
UNKNOWN_TOPIC = "unknown"


@dataclass(frozen=True, slots=True)
class _Text:
    """One free text of a record."""

    field: str
    """Name of the event field, with the index where it is a list."""
    text: str
    json: bool = False
    """True for JSON text, which has to stay JSON."""


class Cleaner:
    """Redacts and seals whole batches, so that clean texts cost one look at a column."""

    def __init__(self, redactor: Redactor, sealer: Sealer, clock: Clock) -> None:
        self._redactor = redactor
        self._sealer = sealer
        self._clock = clock

    def clean(self, batch: Sequence[bytes]) -> list[Event]:
        """The event of each record of `batch`."""
        records = [_read(data) for data in batch]
        texts = [[] if record is None else list(_texts(record)) for record in records]
        redacted = self._redact([text for of_one in texts for text in of_one])
        events: list[Event] = []
        for data, record, of_one in zip(batch, records, texts, strict=True):
            fields = {text.field: next(redacted) for text in of_one}
            events.append(self._event(data, record, fields))
        return events

    def quarantine(self, data: bytes, reason: str) -> DeadLetter:
        """The record `data` as a dead letter, sealed whole under its subject where it has one."""
        record = _read(data)
        event_id = ids.new_id(self._clock.now())
        owner = QUARANTINE if record is None else _owner(record)
        sealed = seal_record(self._sealer, event_id, owner, data)
        return DeadLetter(
            event_id=event_id,
            source_topic=UNKNOWN_TOPIC if record is None else _topic(record),
            stage=FLUSHER,
            reason=reason,
            sha256=hashlib.sha256(data).hexdigest(),
            subject=None if record is None else record.subject,
            key_id=sealed.key_id,
            sealed=sealed.ciphertext,
        )

    def _redact(self, texts: Sequence[_Text]) -> Iterator[Redacted | Failed]:
        """Each text redacted, in order; the plain ones as one column."""
        plain = iter(self._redactor.redact_many([t.text for t in texts if not t.json]))
        return iter(
            [attempt_json(self._redactor, t.text) if t.json else next(plain) for t in texts]
        )

    def _event(
        self, data: bytes, record: RawRecord | None, fields: Mapping[str, Redacted | Failed]
    ) -> Event:
        if record is None:
            return self.quarantine(data, "undecodable")
        clean = {name: text for name, text in fields.items() if isinstance(text, Redacted)}
        if len(clean) < len(fields):
            return self.quarantine(data, "redaction_failed")
        try:
            if isinstance(record, RawFeedback):
                return self._feedback(record, clean)
            return self._inference(record, clean)
        except (OverflowError, ValueError):  # a time or a number beyond what an event can hold
            return self.quarantine(data, "out_of_range")

    def _feedback(self, raw: RawFeedback, fields: Mapping[str, Redacted]) -> FeedbackReceived:
        return FeedbackReceived(
            event_id=raw.event_id,
            inference_id=raw.inference_id,
            caller=raw.caller,
            source=raw.source,
            rater=raw.rater,
            score=raw.score,
            label=None if raw.label is None else fields["label"].text,
            comment=None if raw.comment is None else fields["comment"].text,
            step=raw.step,
            given_at=None if raw.given_at_us is None else from_micros(raw.given_at_us),
            idempotency_key=raw.idempotency_key,
            subject=raw.subject,
            pii=tuple(self._findings(raw, fields)),
        )

    def _inference(self, raw: RawInference, fields: Mapping[str, Redacted]) -> InferenceCompleted:
        prompt = _masked(raw.prompt_ids, raw.prompt_ends, raw.prompt, fields["prompt"])
        response = _masked(raw.response_ids, raw.response_ends, raw.response, fields["response"])
        findings = list(self._findings(raw, fields))
        for name, ids_, masked in (
            ("prompt_ids", raw.prompt_ids, prompt),
            ("response_ids", raw.response_ids, response),
        ):
            findings += self._token_findings(raw, name, ids_ or (), masked, len(findings))
        tools = tuple(fields[f"tools[{at}]"].text for at in range(len(raw.tools)))
        # the grammar of the response is its tools: with another name the log-probs mean nothing
        regrammared = tools != tuple(raw.tools)
        return InferenceCompleted(
            event_id=raw.event_id,
            request_id=raw.request_id,
            attempt=raw.attempt,
            session_id=raw.session_id,
            turn=raw.turn,
            subject=raw.subject,
            policy=raw.policy,
            arm=raw.arm,
            arm_probability=raw.arm_probability,
            snapshot_id=raw.snapshot_id,
            digest=raw.digest,
            model=fields["model"].text,
            tokenizer=raw.tokenizer,
            tools=tools,
            prompt=fields["prompt"].text,
            response=fields["response"].text,
            prompt_ids=None if prompt is None else prompt.ids,
            response_ids=None if response is None else response.ids,
            response_logprobs=_tuple(raw.response_logprobs),
            loss_mask=None if response is None else tuple(int(i != MASK_ID) for i in response.ids),
            trainable=raw.trainable and not regrammared,
            untrainable_reason="tools_redacted" if regrammared else raw.untrainable_reason,
            altered=any(masked is not None and masked.runs for masked in (prompt, response)),
            segments=tuple(raw.segments),
            sampling=raw.sampling,
            tool_calls=tuple(_tool_calls(raw, fields)),
            finish_reason=raw.finish_reason,
            dispatched_at=from_micros(raw.dispatched_us),
            started_at=from_micros(raw.started_us),
            first_token_at=(
                None if raw.first_token_us is None else from_micros(raw.first_token_us)
            ),
            completed_at=from_micros(raw.completed_us),
            node_id=raw.node_id,
            pii=tuple(findings),
        )

    def _findings(self, raw: RawRecord, fields: Mapping[str, Redacted]) -> Iterator[Finding]:
        """The values cut from the texts, sealed, numbered through the event."""
        spans = [(field, span) for field, redacted in fields.items() for span in redacted.spans]
        for ordinal, (field, span) in enumerate(spans):
            value = (span.value or "").encode("utf-8", "surrogatepass")
            yield self._sealed(raw, field, ordinal, span, value)

    def _token_findings(
        self,
        raw: RawInference,
        field: str,
        original: Sequence[int],
        masked: MaskedIds | None,
        first: int,
    ) -> Iterator[Finding]:
        runs = () if masked is None else masked.runs
        for ordinal, (start, end) in enumerate(runs, first):
            value = ",".join(str(token) for token in original[start:end]).encode("ascii")
            yield self._sealed(raw, field, ordinal, Span(start, end, IDS_KIND), value)

    def _sealed(
        self, raw: RawRecord, field: str, ordinal: int, span: Span, value: bytes
    ) -> Finding:
        place = Place(raw.event_id, field, ordinal, span.kind, _owner(raw))
        sealed = self._sealer.seal(place, value)
        return Finding(
            field=field,
            ordinal=ordinal,
            kind=span.kind,
            also=span.also,
            start=span.start,
            end=span.end,
            key_id=sealed.key_id,
            ciphertext=sealed.ciphertext,
        )


def _read(data: bytes) -> RawRecord | None:
    try:
        return unpack(data)
    except ValueError:
        return None


def _owner(record: RawRecord) -> str:
    """Whose key seals the record's values: erasing a person takes those of their inferences too."""
    if record.subject is not None:
        return record.subject
    inference = record.inference_id if isinstance(record, RawFeedback) else record.event_id
    return f"inference:{inference}"


def _topic(record: RawRecord) -> str:
    kind = FeedbackReceived if isinstance(record, RawFeedback) else InferenceCompleted
    return kind.TOPIC


def _texts(record: RawRecord) -> Iterator[_Text]:
    """Every text of a record that a client or a model wrote."""
    if isinstance(record, RawFeedback):
        for name, text in (("label", record.label), ("comment", record.comment)):
            if text is not None:
                yield _Text(name, text)
        return
    yield _Text("prompt", record.prompt)
    yield _Text("response", record.response)
    yield _Text("model", record.model)
    for at, tool in enumerate(record.tools):
        yield _Text(f"tools[{at}]", tool)
    for at, call in enumerate(record.tool_calls):
        yield _Text(f"tool_calls[{at}].id", call.id)
        yield _Text(f"tool_calls[{at}].name", call.name)
        yield _Text(f"tool_calls[{at}].arguments", call.arguments, json=True)


def _tool_calls(raw: RawInference, fields: Mapping[str, Redacted]) -> Iterator[ToolCall]:
    for at in range(len(raw.tool_calls)):
        parts = {
            part: fields[f"tool_calls[{at}].{part}"].text for part in ToolCall.__struct_fields__
        }
        yield ToolCall(**parts)


def _masked(
    token_ids: list[int] | None, ends: list[int] | None, text: str, redacted: Redacted
) -> MaskedIds | None:
    if token_ids is None:
        return None
    cuts = [(span.source_start, span.source_end) for span in redacted.spans]
    return mask_ids(token_ids, ends, len(text), cuts)


def _tuple(values: list[float] | None) -> tuple[float, ...] | None:
    return None if values is None else tuple(values)
