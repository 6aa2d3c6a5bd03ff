"""The topic that ours and Spark read: what is promised of it holds."""

from __future__ import annotations

import re

from afterbay.schemas.codec import decode
from afterbay.schemas.events import InferenceCompleted
from afterbay.streams.pii import Redacted, Redactor
from tests.bench.ingest_topic import PERSONAL, TOPIC, messages
from tests.bench.spark_job_patterns import KINDS

COUNT = 2_000


def prompts() -> list[str]:
    events = [decode(message.value, TOPIC) for message in messages(COUNT, seed=1)]
    return [event.prompt for event in events if isinstance(event, InferenceCompleted)]


def test_three_in_ten_hold_a_value_and_a_message_has_its_size() -> None:
    found = Redactor().redact_many(prompts())
    dirty = [t for t in found if isinstance(t, Redacted) and t.new]
    assert len(found) == COUNT
    assert abs(len(dirty) / COUNT - PERSONAL) < 0.05
    assert {span.kind for text in dirty for span in text.new} == {
        "phone",
        "bank_card",
        "email",
        "cn_resident_id",
    }
    size = sum(len(message.value) for message in messages(COUNT, seed=1)) / COUNT
    assert 750 < size < 900


def test_both_sides_mask_the_same_values() -> None:
    for text, ours in zip(prompts(), Redactor().redact_many(prompts()), strict=True):
        theirs = text
        for pattern, mask in KINDS:
            theirs = re.sub(pattern, mask, theirs)
        assert isinstance(ours, Redacted)
        assert re.sub(r"\[(bank_card|cn_resident_id)\]", "[number]", ours.text) == theirs
