"""Tokens cover the text, in code points, and tool names survive them."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterbay.schemas.errors import BadState
from afterbay.trainers.tokenizer import Tokenizer, fold

TEXTS = ("where is my card", "我的卡在哪里", "card_block", "card_block")
TOKENIZER = Tokenizer.train(TEXTS, 400)


@given(st.text(max_size=60))
def test_ends_ascend_and_reach_the_end_of_any_text(text: str) -> None:
    encoded = TOKENIZER.encode(text)
    assert len(encoded.ids) == len(encoded.ends)
    assert all(a < b for a, b in pairwise((0, *encoded.ends)))
    assert encoded.ends[-1:] == ((len(text),) if text else ())


@given(st.text(max_size=60))
def test_folding_keeps_every_offset(text: str) -> None:
    assert len(fold(text)) == len(text)


def test_full_width_digits_read_as_digits() -> None:
    assert TOKENIZER.encode("１３８０").ids == TOKENIZER.encode("1380").ids


def test_a_character_never_seen_is_one_token() -> None:
    assert len(TOKENIZER.encode("龘龘").ids) == 2


@given(st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True))
def test_pieces_of_a_tool_name_join_to_it(name: str) -> None:
    assert "".join(map(TOKENIZER.piece, TOKENIZER.encode_name(name))) == name


def test_the_same_texts_give_the_same_tokenizer() -> None:
    assert Tokenizer.train(TEXTS, 400).fingerprint == TOKENIZER.fingerprint
    assert Tokenizer.parse(TOKENIZER.text).fingerprint == TOKENIZER.fingerprint
    assert Tokenizer.train(TEXTS[:2], 400).fingerprint != TOKENIZER.fingerprint


@pytest.mark.parametrize("text", ["", "{}", '{"model": 1}'])
def test_a_broken_file_is_refused(text: str) -> None:
    with pytest.raises(BadState, match=r"tokenizer\.json"):
        Tokenizer.parse(text)
