"""The codec against the Avro specification, and against whatever bytes arrive."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from afterbay.schemas import codec
from afterbay.schemas.errors import Rejected
from afterbay.schemas.events import Cursor, Event, InputOffset
from afterbay.schemas.topics import MAX_MESSAGE_BYTES, TOPICS
from tests import strategies as own

CURSOR = Cursor(
    source="flusher",
    offsets=(InputOffset(topic="t", topic_id="i", partition=1, next_offset=4),),
)
MESSAGE = codec.encode(CURSOR)


def crc_64_avro(text: bytes) -> int:
    """The specification's own algorithm (Avro 1.12, "Schema Fingerprints"), bit by bit."""
    empty = 0xC15D213AA4D7A795
    value = empty
    for byte in text:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (empty if value & 1 else 0)
    return value


def reason(message: bytes | None, topic: str = "cursor.v2") -> str:
    outcome = codec.decode(message, topic)
    assert isinstance(outcome, Rejected)
    return outcome.reason


@given(own.events)
def test_an_event_comes_back_as_it_went(event: Event) -> None:
    assert codec.decode(codec.encode(event), event.TOPIC) == event


def test_the_header_is_the_specifications_fingerprint_in_little_endian() -> None:
    from fastavro.schema import to_parsing_canonical_form

    for topic in TOPICS:
        schema = codec.newest(topic)
        form = to_parsing_canonical_form(schema.parsed).encode()
        assert schema.fingerprint == crc_64_avro(form).to_bytes(8, "little")


def test_the_reference_algorithm_gives_the_published_value_of_int() -> None:
    assert crc_64_avro(b'"int"') == 0x7275D51A3F395C8F


def test_a_tombstone_is_refused() -> None:
    assert reason(None) == "tombstone"


def test_every_truncation_is_refused() -> None:
    for end in range(len(MESSAGE)):
        assert reason(MESSAGE[:end]) in {"short", "undecodable"}


def test_trailing_bytes_are_refused() -> None:
    assert reason(MESSAGE + b"\0") == "trailing"


def test_confluent_framing_is_refused_by_its_magic() -> None:
    assert reason(b"\0\0\0\0\x01" + MESSAGE[10:]) == "magic"


def test_an_unknown_fingerprint_is_refused() -> None:
    assert reason(codec.MAGIC + b"\0" * 8 + MESSAGE[10:]) == "fingerprint"


def test_a_schema_of_another_topic_is_refused() -> None:
    assert reason(MESSAGE, "policy.loaded.v2") == "fingerprint"


def test_a_message_over_the_cap_is_refused_unread() -> None:
    assert reason(MESSAGE + b"\0" * MAX_MESSAGE_BYTES) == "oversized"


def test_thirty_million_items_in_a_few_bytes_are_refused() -> None:
    count = bytes([0x80, 0xCE, 0xCE, 0x1C])  # zigzag varint of 30,000,000
    assert reason(MESSAGE[:10] + b"\x02x\0\0" + count) == "undecodable"


@given(st.binary(max_size=200))
def test_no_body_makes_the_decoder_raise(body: bytes) -> None:
    outcome = codec.decode(codec.newest("inference.completed.v2").header + body, "cursor.v2")
    assert isinstance(outcome, Rejected)
    outcome_of_own = codec.decode(MESSAGE[:10] + body, "cursor.v2")
    assert isinstance(outcome_of_own, Rejected | Cursor)


@given(st.binary(min_size=1, max_size=40))
def test_a_refusal_never_holds_the_payload(body: bytes) -> None:
    text = b"SECRET" + body
    assert "SECRET" not in repr(codec.decode(MESSAGE[:10] + text, "cursor.v2"))
