"""A response can be nothing but the name of a tool that was offered."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterbay.schemas.errors import BadSettings
from afterbay.trainers.grammar import DEAD, ROOT, Grammar, grammar_of
from afterbay.trainers.tokenizer import Tokenizer

TOKENIZER = Tokenizer.train(["card_block card_delivery fees"], 300)
NAMES = st.lists(
    st.from_regex(r"[a-z_-]{1,12}", fullmatch=True), min_size=1, max_size=6, unique=True
)


def _paths(grammar: Grammar, node: int = ROOT) -> set[tuple[int, ...]]:
    found: set[tuple[int, ...]] = set()
    for token_id in grammar.allowed(node):
        after = grammar.next(node, token_id)
        found |= {(token_id, *rest) for rest in _paths(grammar, after)} or {(token_id,)}
    return found


@given(NAMES)
def test_the_paths_of_a_grammar_are_exactly_the_names_offered(names: list[str]) -> None:
    grammar = grammar_of(TOKENIZER, tuple(names), 65)
    paths = _paths(grammar)
    assert {"".join(map(TOKENIZER.piece, path)) for path in paths} == set(names)
    assert all(grammar.accepts(path) for path in paths)
    assert not any(grammar.accepts(path[:-1]) for path in paths)


def test_a_name_that_begins_another_needs_the_end_to_be_told_from_it() -> None:
    grammar = grammar_of(TOKENIZER, ("card", "card_block"), 65)
    after_card = grammar.next(ROOT, TOKENIZER.encode_name("card")[0])
    assert TOKENIZER.end_id in grammar.allowed(after_card)
    assert len(grammar.allowed(after_card)) == 2


def test_a_walk_is_dead_after_a_masked_token() -> None:
    grammar = grammar_of(TOKENIZER, ("card_block", "fees"), 65)
    assert grammar.walk([-1, 5, 6]) == [ROOT, DEAD, DEAD]


@pytest.mark.parametrize(
    ("tools", "says"),
    [
        ((), "no tools"),
        (("fees", "fees"), "same name"),
        (("转账",), "characters outside"),
        (("",), "characters outside"),
        (("x-y-z-" * 9,), "at most 20"),
    ],
)
def test_tools_that_cannot_be_spelled_are_refused(tools: tuple[str, ...], says: str) -> None:
    with pytest.raises(BadSettings, match=says):
        grammar_of(TOKENIZER, tools, 20)
