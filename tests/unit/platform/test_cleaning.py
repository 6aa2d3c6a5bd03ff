"""What leaves the flusher: no clear value, everything sealed and given back byte for byte."""

import base64
import json
import zlib
from collections.abc import Mapping
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from afterbay.platform.cleaning import Cleaner
from afterbay.platform.records import RawInference, RawRecord, pack, unpack
from afterbay.schemas.codec import decode, encode
from afterbay.schemas.errors import Rejected
from afterbay.schemas.events import (
    DeadLetter,
    Event,
    FeedbackReceived,
    Finding,
    InferenceCompleted,
    ToolCall,
)
from afterbay.streams.keys.sealer import Place, Sealed, Sealer, open_sealed
from afterbay.streams.keys.store import KeyStore
from afterbay.streams.keys.vault import SealBroken, Vault
from afterbay.streams.pii import Redactor, reveal
from afterbay.streams.pii.detect import Detector
from tests.support.manual_clock import ManualClock
from tests.support.raw_records import raw_feedback, raw_inference

PHONE, CARD, MAIL = "13812345678", "4111111111111111", "li.na@example.com"


class Bench:
    """A cleaner with everything needed to look behind it."""

    def __init__(self, folder: Path) -> None:
        self.store = KeyStore(folder / "keystore.sqlite")
        self.vault = Vault(X25519PrivateKey.generate())
        clock = ManualClock()
        self.sealer = Sealer(self.vault.public(), self.store, "flusher", clock)
        self.cleaner = Cleaner(Redactor(), self.sealer, clock)
        self.clock = clock

    def clean(self, *records: RawRecord) -> list[Event]:
        events = self.cleaner.clean([pack(record) for record in records])
        self.sealer.commit()
        return events

    def inference(self, record: RawInference) -> InferenceCompleted:
        (event,) = self.clean(record)
        assert isinstance(event, InferenceCompleted)
        return event

    def value(self, event_id: str, subject: str, finding: Finding) -> str:
        place = Place(event_id, finding.field, finding.ordinal, finding.kind, subject)
        sealed = Sealed(finding.key_id, finding.ciphertext)
        return open_sealed(self.vault, self.store, place, sealed).decode()

    def revealed(self, event: InferenceCompleted, field: str, text: str) -> str:
        found = [f for f in event.pii if f.field == field]
        return reveal(
            text, [(f.start, f.end, self.value(event.event_id, event.subject, f)) for f in found]
        )


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def ends(text: str) -> list[int]:
    return list(range(1, len(text) + 1))


def test_a_clean_record_becomes_the_event_it_describes(bench: Bench) -> None:
    raw = raw_inference()
    event = bench.inference(raw)
    assert event.pii == ()
    assert (event.prompt, event.response, event.altered) == (raw.prompt, raw.response, False)
    assert (event.prompt_ids, event.response_ids) == (tuple(raw.prompt_ids or ()), (7, 8))
    assert (event.loss_mask, event.trainable) == ((1, 1), True)
    assert event.response_logprobs == (-0.5, -0.25)
    decoded = decode(encode(event), event.TOPIC)
    assert not isinstance(decoded, Rejected)
    assert decoded == event


def test_values_are_cut_from_every_text_a_client_or_model_wrote(bench: Bench) -> None:
    event = bench.inference(
        raw_inference(
            prompt=f"我的手机{PHONE}，卡{CARD}",
            prompt_ids=None,
            prompt_ends=None,
            response=f"call {PHONE}",
            response_ids=None,
            response_ends=None,
            model=f"model-of {MAIL}",
            tools=[f"call {PHONE}", "refund"],
            tool_calls=[
                ToolCall(
                    id=f"id {PHONE}", name=f"call {PHONE}", arguments=json.dumps({"to": int(PHONE)})
                )
            ],
        )
    )
    body = encode(event)
    assert not any(value.encode() in body for value in (PHONE, CARD, MAIL))
    assert event.prompt == "我的手机[phone]，卡[bank_card]"
    assert event.tools == ("call [phone]", "refund")
    assert event.tool_calls[0].arguments == '{"to": "[phone]"}'
    assert [f.ordinal for f in event.pii] == list(range(len(event.pii)))
    assert {f.field for f in event.pii} == {
        "prompt",
        "response",
        "model",
        "tools[0]",
        "tool_calls[0].id",
        "tool_calls[0].name",
        "tool_calls[0].arguments",
    }


def test_a_row_whose_grammar_was_redacted_is_not_trained_on(bench: Bench) -> None:
    event = bench.inference(raw_inference(tools=[f"call {PHONE}"]))
    assert (event.trainable, event.untrainable_reason) == (False, "tools_redacted")


def test_the_vault_gives_every_text_back_byte_for_byte(bench: Bench) -> None:
    prompt = f"[phone] 我的手机{PHONE}，１３８１２３４５６７８"
    arguments = r'{"to": 13812345678, "note": "\u0031\u0033812345678"}'
    raw = raw_inference(
        prompt=prompt,
        prompt_ids=None,
        tool_calls=[ToolCall(id="call-1", name="refund", arguments=arguments)],
    )
    event = bench.inference(raw)
    assert bench.revealed(event, "prompt", event.prompt) == prompt
    shown = event.tool_calls[0].arguments
    assert bench.revealed(event, "tool_calls[0].arguments", shown) == arguments


def test_ids_that_spell_a_value_are_masked_and_sealed(bench: Bench) -> None:
    prompt, response = f"我的{PHONE}好", f"to {PHONE}"
    event = bench.inference(
        raw_inference(
            prompt=prompt,
            prompt_ids=list(range(100, 100 + len(prompt))),
            prompt_ends=ends(prompt),
            response=response,
            response_ids=list(range(200, 200 + len(response))),
            response_ends=ends(response),
            response_logprobs=[-1.0] * len(response),
        )
    )
    assert event.prompt_ids == (100, 101, *[-1] * 11, 113)
    assert event.response_ids == (200, 201, 202, *[-1] * 11)
    assert event.loss_mask == (1, 1, 1, *[0] * 11)
    assert event.altered
    masked = {f.field: f for f in event.pii if f.kind == "token_ids"}
    assert (masked["prompt_ids"].start, masked["prompt_ids"].end) == (2, 13)
    value = bench.value(event.event_id, event.subject, masked["prompt_ids"])
    assert value == ",".join(str(token) for token in range(102, 113))


def test_ids_without_ends_are_all_masked_if_there_is_a_finding(bench: Bench) -> None:
    event = bench.inference(
        raw_inference(prompt=f"我的{PHONE}", prompt_ids=[1, 2], prompt_ends=None)
    )
    assert (event.prompt_ids, event.altered) == ((-1, -1), True)


def test_feedback_without_a_person_is_sealed_under_its_inference(bench: Bench) -> None:
    raw = raw_feedback(comment=f"请回电{PHONE}", label=MAIL)
    (event,) = bench.clean(raw)
    assert isinstance(event, FeedbackReceived)
    assert (event.label, event.comment) == ("[email]", "请回电[phone]")
    values = [bench.value(raw.event_id, f"inference:{raw.inference_id}", f) for f in event.pii]
    assert values == [MAIL, PHONE]


def test_feedback_of_a_person_is_sealed_under_that_person(bench: Bench) -> None:
    raw = raw_feedback(comment=PHONE, subject="subject-9")
    (event,) = bench.clean(raw)
    assert isinstance(event, FeedbackReceived)
    assert bench.value(raw.event_id, "subject-9", event.pii[0]) == PHONE
    with pytest.raises(SealBroken):
        bench.value(raw.event_id, f"inference:{raw.inference_id}", event.pii[0])


def opened(bench: Bench, letter: DeadLetter, subject: str) -> RawRecord | bytes:
    place = Place(letter.event_id, "sealed", 0, "record", subject)
    data = zlib.decompress(
        open_sealed(bench.vault, bench.store, place, Sealed(letter.key_id, letter.sealed))
    )
    try:
        return unpack(data)
    except ValueError:
        return data


def test_a_failing_detector_quarantines_its_record_and_no_other(bench: Bench) -> None:
    late = Redactor(Detector(budget_s=-1.0))
    cleaner = Cleaner(late, bench.sealer, bench.clock)
    bad, good = raw_inference(1, prompt=f"我的{PHONE}"), raw_inference(2)
    letter, event = cleaner.clean([pack(bad), pack(good)])
    bench.sealer.commit()
    assert isinstance(letter, DeadLetter)
    assert isinstance(event, InferenceCompleted)
    assert (letter.reason, letter.source_topic) == ("redaction_failed", "inference.completed.v2")
    assert letter.subject == bad.subject
    assert opened(bench, letter, bad.subject) == bad
    assert PHONE.encode() not in encode(letter)
    assert PHONE.encode() not in base64.b64decode(letter.sealed)


def test_bytes_that_are_no_record_are_quarantined_under_nobody(bench: Bench) -> None:
    (letter,) = bench.cleaner.clean([b"\xc1 13812345678"])
    bench.sealer.commit()
    assert isinstance(letter, DeadLetter)
    assert (letter.reason, letter.subject, letter.source_topic) == ("undecodable", None, "unknown")
    assert opened(bench, letter, "quarantine") == b"\xc1 13812345678"


def test_a_time_no_event_can_hold_is_quarantined(bench: Bench) -> None:
    (letter,) = bench.clean(raw_feedback(given_at_us=2**62))
    assert isinstance(letter, DeadLetter)
    assert letter.reason == "out_of_range"


def test_many_records_are_told_apart(bench: Bench) -> None:
    records = [
        raw_inference(n, prompt=f"卡{n}" + (f" {PHONE}" if n % 3 == 0 else "")) for n in range(40)
    ]
    events = bench.clean(*records)
    shown: Mapping[str, str] = {
        e.event_id: e.prompt for e in events if isinstance(e, InferenceCompleted)
    }
    assert shown == {r.event_id: r.prompt.replace(PHONE, "[phone]") for r in records}
