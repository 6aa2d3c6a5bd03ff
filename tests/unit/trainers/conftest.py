"""A small policy that nobody trained, for tests that need one."""

from __future__ import annotations

import pytest

from afterbay.trainers.network import Shape, new_network
from afterbay.trainers.policy import LocalPolicy, PolicyConfig
from afterbay.trainers.tokenizer import Tokenizer

TOOLS = ("card_block", "card_delivery", "fees", "top_up", "transfer")
TEXTS = (
    "Where is my card?",
    "Block my card, it was stolen",
    "Why was I charged a fee",
    "我要转账给朋友",
    "top up with cash",
)


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    """Trained on a few texts; an odd number of tokens, so that no vector width divides it."""
    return Tokenizer.train([*TEXTS, *TOOLS * 50], 213)


@pytest.fixture
def policy(tokenizer: Tokenizer) -> LocalPolicy:
    """Fresh weights, spread out so that answers differ."""
    shape = Shape(vocabulary=tokenizer.size, embedding=16, width=32)
    network = new_network(shape, seed=3)
    network.head.tokens.weight.data *= 8
    draws = iter(range(10**6))
    return LocalPolicy(
        PolicyConfig(shape=shape, tools=TOOLS), tokenizer, network, lambda: next(draws)
    )
