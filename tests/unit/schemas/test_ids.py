"""UUIDv7 against RFC 9562, appendix A.6."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import example, given
from hypothesis import strategies as st

from afterbay.schemas import ids
from afterbay.schemas.clock import from_micros
from tests.strategies import instants

RFC_ID = "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"
RFC_TIME = datetime(2022, 2, 22, 19, 22, 22, tzinfo=UTC)
RFC_RANDOM = (0xCC3 << 62 | 0x18C4DC0C0C07398F).to_bytes(10)


def test_the_rfcs_example_is_minted_from_its_parts() -> None:
    assert ids.new_id(RFC_TIME, RFC_RANDOM) == RFC_ID


def test_the_rfcs_example_tells_its_time() -> None:
    assert ids.minted_at(RFC_ID) == RFC_TIME
    assert ids.date_label(RFC_ID) == "2022-02-22"


@given(instants, st.binary(min_size=10, max_size=10))
@example(from_micros(2_180_558_768_640_000), bytes(10))  # as a float of seconds it is one less
def test_an_id_tells_the_millisecond_it_was_minted_in(at: datetime, entropy: bytes) -> None:
    told = ids.minted_at(ids.new_id(at, entropy))
    assert told is not None
    assert told == at.replace(microsecond=at.microsecond // 1000 * 1000)


@given(instants, instants, st.binary(min_size=10, max_size=10))
def test_ids_sort_by_time(a: datetime, b: datetime, entropy: bytes) -> None:
    first, second = ids.new_id(a, entropy), ids.new_id(b, entropy)
    if ids.minted_at(first) != ids.minted_at(second):
        assert (first < second) == (a < b)


def test_what_is_no_canonical_uuid7_is_none() -> None:
    for text in ("", "x", RFC_ID.upper(), RFC_ID.replace("-", ""), RFC_ID.replace("-7", "-4")):
        assert ids.parse(text) is None
        assert ids.date_label(text) is None


def test_the_clients_prefix_is_optional() -> None:
    assert ids.inference_id("chatcmpl-" + RFC_ID) == RFC_ID
    assert ids.inference_id(RFC_ID) == RFC_ID
    assert ids.inference_id("chatcmpl-nothing") is None


@given(st.text())
def test_any_text_is_an_id_or_none(text: str) -> None:
    assert ids.minted_at(text) is None or ids.parse(text) is not None
