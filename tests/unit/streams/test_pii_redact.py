"""Redaction as a map of (text, findings): reversible, idempotent, and with exact offsets."""

import json
import unicodedata
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from afterbay.streams.pii import Failed, Redacted, Redactor, Span, redact_json, redact_many, reveal
from afterbay.streams.pii.detect import Detector, DetectorTimeout, Match
from afterbay.streams.pii.folding import fold

VALUES = (
    "13812345678",
    "+86 138-1234-5678",
    "(415) 555-0146",
    "021-68347017",
    "4111111111111111",
    "4111 1111 1111 1111",
    "11010519491231002X",
    "91110000600037341L",
    "GB29 NWBK 6016 1331 9268 19",
    "li.na54@example.com",
    "24:29:2e:3b:83:d5",
    "10.195.194.150",
    "2001:db8::330:9bdf",
    "219-09-9999",
)
FILLERS = (
    "",
    " ",
    "，",
    "我的电话",
    "card ",
    "a",
    "7",
    "-",
    ".",
    "\n",
    "[phone]",
    "[",
    "]",
    "[[ip]]",
)
ZERO_WIDTH = "\u200b\u200d\ufeff\u2060\u00ad\ufe0f"


def full_width(text: str) -> str:
    return "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in text)


def arabic(text: str) -> str:
    return text.translate({ord("0") + n: 0x0660 + n for n in range(10)})


@st.composite
def disguised(draw: st.DrawFn) -> str:
    """A value as somebody might write it: another width, another script, invisible characters."""
    value = draw(st.sampled_from(VALUES))
    writings: tuple[Callable[[str], str], ...] = (str, full_width, arabic)
    written = draw(st.sampled_from(writings))(value)
    at = draw(st.integers(1, len(written) - 1))
    hidden: str = draw(st.sampled_from(("", *ZERO_WIDTH)))
    return written[:at] + hidden + written[at:]


pieces = st.one_of(
    disguised(), st.sampled_from(FILLERS), st.text(st.characters(codec="utf-8"), max_size=8)
)
texts = st.lists(pieces, max_size=8).map("".join)
REDACTOR = Redactor()


def put_back(redacted: Redacted) -> str:
    return reveal(redacted.text, [(s.start, s.end, s.value or "") for s in redacted.spans])


@given(st.text())
def test_the_folded_copy_maps_back_character_by_character(text: str) -> None:
    folded = fold(text)
    origin = folded.origin if folded.origin is not None else tuple(range(len(text)))
    assert len(origin) == len(folded.text)
    assert list(origin) == sorted(set(origin))
    assert all(fold(text[at]).text == char for at, char in zip(origin, folded.text, strict=True))
    assert fold(folded.text).text == folded.text


def test_every_decimal_digit_of_unicode_folds_to_its_ascii_twin() -> None:
    digits = [chr(c) for c in range(0x110000) if unicodedata.category(chr(c)) == "Nd"]
    assert len(digits) >= 650
    assert fold("".join(digits)).text == "".join(str(unicodedata.decimal(d)) for d in digits)


@settings(max_examples=400)
@given(texts)
def test_redact_then_reveal_is_the_text_again(text: str) -> None:
    assert put_back(REDACTOR.redact(text)) == text


@settings(max_examples=400)
@given(texts)
def test_redacting_text_and_findings_twice_changes_nothing(text: str) -> None:
    once = REDACTOR.redact(text)
    twice = REDACTOR.redact(once.text, once.spans)
    assert twice.text == once.text
    assert twice.new == ()
    assert [(s.start, s.end, s.kind, s.also, s.ordinal) for s in twice.spans] == [
        (s.start, s.end, s.kind, s.also, s.ordinal) for s in once.spans
    ]


@settings(max_examples=400)
@given(texts)
def test_spans_are_apart_in_order_and_name_what_they_replaced(text: str) -> None:
    redacted = REDACTOR.redact(text)
    end = 0
    for number, span in enumerate(redacted.spans):
        assert end <= span.start < span.end
        assert redacted.text[span.start : span.end] == f"[{span.kind}]"
        assert text[span.source_start : span.source_end] == span.value
        assert span.ordinal == number
        end = span.end


@settings(max_examples=60)
@given(st.lists(texts, min_size=16, max_size=24))
def test_the_look_at_the_column_never_misses_a_text_with_a_finding(column: list[str]) -> None:
    detector = Detector()
    held = detector.candidates(column)
    missed = [t for t, maybe in zip(column, held, strict=True) if not maybe and detector.find(t)]
    assert missed == []


def test_most_plain_sentences_do_not_pass_the_look_at_the_column() -> None:
    plain = [
        "我的卡还没到，请问什么时候到？",
        "30-day limit is 5000",
        "see section 3.1",
        "@here",
    ] * 8
    assert sum(Detector().candidates(plain)) == 8  # `@here` alone


@pytest.mark.parametrize("value", VALUES)
def test_a_value_and_its_disguises_are_masked(value: str) -> None:
    for written in (value, full_width(value), arabic(value), value[:3] + "\u200b" + value[3:]):
        redacted = REDACTOR.redact(f"我的{written}谢谢")
        (span,) = redacted.spans
        assert redacted.text == f"我的[{span.kind}]谢谢"
        assert span.value == written


def test_a_value_hidden_by_its_neighbour_is_found_once_that_is_cut() -> None:
    redacted = REDACTOR.redact("x@example.com13812345678")
    assert redacted.text == "[email][phone]"


def test_text_that_looks_like_a_placeholder_is_a_literal() -> None:
    redacted = REDACTOR.redact("my [phone] is 13812345678")
    assert redacted.text == "my [literal] is [phone]"
    assert [(s.kind, s.value) for s in redacted.spans] == [
        ("literal", "[phone]"),
        ("phone", "13812345678"),
    ]


def test_later_findings_never_renumber_earlier_ones() -> None:
    only_mail = Redactor(Detector([k for k in Detector()._kinds if k.name == "email"]))
    first = only_mail.redact("13812345678 a@example.com", first_ordinal=5)
    second = REDACTOR.redact(first.text, first.spans, first_ordinal=9)
    assert second.text == "[phone] [email]"
    assert [(s.kind, s.ordinal, s.value) for s in second.spans] == [
        ("phone", 9, "13812345678"),
        ("email", 5, None),
    ]


def test_a_value_at_the_last_byte_of_a_long_text_is_found() -> None:
    text = "我的卡还没到。" * 50_000 + "13812345678"
    assert REDACTOR.redact(text).text == "我的卡还没到。" * 50_000 + "[phone]"


class Broken:
    """A detector that fails on one text."""

    def candidates(self, texts: Sequence[str]) -> list[bool]:
        return [True] * len(texts)

    def find(self, text: str) -> list[Match]:
        if "bad" in text:
            raise ZeroDivisionError(text)
        return []


def test_a_detector_that_raises_fails_its_own_text_only() -> None:
    out = Redactor(Broken()).redact_many(["good", "bad 13812345678"])
    assert out == [Redacted("good"), Failed("ZeroDivisionError")]


def test_a_detector_out_of_time_lets_nothing_pass() -> None:
    late = Detector(budget_s=-1.0)
    with pytest.raises(DetectorTimeout) as caught:
        late.find("13812345678")
    assert "138" not in str(caught.value)
    assert Redactor(late).redact_many(["13812345678"]) == [Failed("DetectorTimeout")]


def test_hostile_texts_do_not_take_forever() -> None:
    for text in (
        "4" * 200_000,
        "4111 " * 40_000,
        "a" * 200_000 + "@",
        "a." * 100_000,
        "::" * 50_000,
    ):
        (outcome,) = REDACTOR.redact_many([text])
        assert isinstance(outcome, Redacted | Failed)


def test_a_lone_surrogate_takes_no_other_text_down() -> None:
    column = ["\ud800 13812345678", *["13812345678"] * 20]
    assert {r.spans[0].kind for r in redact_many(column) if isinstance(r, Redacted)} == {"phone"}


numbers = st.sampled_from([13812345678, 4111111111111111, 5, -3, 2.5, True, None])
documents = st.recursive(
    numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
)


@settings(max_examples=200)
@given(documents, st.booleans(), st.sampled_from((None, 1)))
def test_json_stays_json_and_reveals_byte_for_byte(
    value: object, ascii_only: bool, indent: int | None
) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    once = redact_json(REDACTOR, text)
    json.loads(once.text)
    assert put_back(once) == text
    twice = redact_json(REDACTOR, once.text, once.spans)
    assert (twice.text, twice.new) == (once.text, ())


def test_a_number_in_json_becomes_a_string_and_escapes_hide_nothing() -> None:
    text = r'{"to": 13812345678, "note": "\u0031\u0033812345678 ok", "a@example.com": [1]}'
    assert (
        redact_json(REDACTOR, text).text
        == '{"to": "[phone]", "note": "[phone] ok", "[email]": [1]}'
    )


def test_arguments_that_are_no_json_are_plain_text() -> None:
    assert redact_json(REDACTOR, '{"to": 13812345678').text == '{"to": [phone]'


def test_spans_know_their_place_in_both_texts() -> None:
    (span,) = REDACTOR.redact("电话137\u200b03179740").spans
    assert span == Span(2, 9, "phone", (), 0, "137\u200b03179740", 2, 14)
