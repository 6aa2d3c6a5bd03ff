"""The corpus is the same for a seed, has no doubles, and plants values with right check digits."""

from __future__ import annotations

import unicodedata
from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from afterbay.platform.demo import corpus
from afterbay.platform.demo.personal import KINDS, luhn_digit, plant, resident_id_check
from afterbay.streams.pii import Redactor

MESSAGES = corpus.make(1)


def test_a_seed_makes_the_same_messages_and_another_seed_other_ones() -> None:
    assert corpus.make(1, 500) == MESSAGES[:500]
    assert {m.text for m in corpus.make(2, 500)} != {m.text for m in MESSAGES[:500]}


def test_no_two_messages_are_the_same_and_there_are_enough_of_them() -> None:
    assert len({m.text for m in MESSAGES}) == len(MESSAGES) >= 2_000


def test_thirteen_tools_have_messages_in_both_languages() -> None:
    chinese = Counter(m.tool for m in MESSAGES if any("\u4e00" <= c <= "\u9fff" for c in m.text))
    everything = Counter(m.tool for m in MESSAGES)
    assert len(everything) == 13
    assert all(100 < chinese[tool] < everything[tool] - 100 for tool in everything)


def test_every_category_belongs_to_one_tool_and_templates_leave_nothing_unfilled() -> None:
    listed = [c for tool, categories in corpus.tools().items() for c in categories]
    named = {(m.tool, m.category) for m in MESSAGES}
    assert len(named) == len(listed)
    assert not any(set("[]{}|") & set(m.text) for m in MESSAGES)


def test_category_names_are_unique_so_that_a_file_of_them_can_be_read_back() -> None:
    listed = [c for categories in corpus.tools().values() for c in categories]
    assert len(set(listed)) == len(listed)


def test_some_messages_carry_personal_values_raw_and_full_width() -> None:
    planted = [value for m in MESSAGES for value in m.planted]
    assert {(v.kind, v.full_width) for v in planted} == {(k, w) for k in KINDS for w in (0, 1)}
    assert all(v.written in m.text for m in MESSAGES for v in m.planted)
    folded = (unicodedata.normalize("NFKC", v.written) for v in planted)
    assert all(f == v.value for f, v in zip(folded, planted, strict=True))


def test_the_redactor_finds_every_planted_value() -> None:
    redactor = Redactor()
    missed = [
        value.kind
        for message in MESSAGES
        for value in message.planted
        if value.written in redactor.redact(message.text).text
    ]
    assert missed == []


def test_check_digits_are_those_of_published_examples() -> None:
    assert luhn_digit("7992739871") == "3"  # the textbook number 79927398713
    assert resident_id_check("11010519491231002") == "X"  # example in GB 11643


@given(st.integers())
def test_card_numbers_pass_luhn_whatever_the_seed(seed: int) -> None:
    random = Random(seed)  # noqa: S311  # made-up numbers, not secrets
    digits = [int(d) for d in reversed(plant(random, "bank_card").value)]
    doubled = [d if i % 2 == 0 else sum(divmod(2 * d, 10)) for i, d in enumerate(digits)]
    assert sum(doubled) % 10 == 0
