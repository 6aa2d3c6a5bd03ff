"""Warm start: learn a first policy from a few labelled messages by cross-entropy.

In:   labelled messages, unlabelled texts for the tokenizer, a seed
Out:  a `LocalPolicy` trained to convergence on the labels, and how well it fits them
Never: sees more labels than it was given; the same inputs give the same bits on CPU
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from afterbay.trainers.batch import Batch, Sample
from afterbay.trainers.labelled import Labelled
from afterbay.trainers.network import Shape, new_network
from afterbay.trainers.policy import LocalPolicy, PolicyConfig
from afterbay.trainers.sampling import SamplingParams
from afterbay.trainers.tokenizer import Tokenizer

NAME_WEIGHT = 200
"""How often each tool name counts when the tokenizer is trained."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImitationSettings:
    """How a warm start learns."""

    vocabulary: int = 2048
    """Most tokens of the tokenizer."""
    steps: int = 300
    """Full-batch updates; the loss is flat long before."""
    learning_rate: float = 2e-3
    weight_decay: float = 0.01
    word_dropout: float = 0.3
    """Share of a message's tokens left out in each update."""


@dataclass(frozen=True, slots=True)
class Fit:
    """How a policy fits labels. Made by `fit_of`, printed by warm start."""

    loss_nats: float
    """Mean cross-entropy of a whole response."""
    accuracy: float
    """Share of labels that the policy gives more than half of its mass."""


def learn(
    labels: Sequence[Labelled],
    texts: Iterable[str],
    tools: tuple[str, ...],
    seed: int,
    settings: ImitationSettings,
) -> LocalPolicy:
    """A policy that imitates `labels`; its tokenizer is trained on `texts`."""
    # repeated, so that a tool name becomes one or two tokens
    tokenizer = Tokenizer.train([*texts, *list(tools) * NAME_WEIGHT], settings.vocabulary)
    shape = Shape(vocabulary=tokenizer.size)
    network = new_network(shape, seed)
    policy = LocalPolicy(PolicyConfig(shape=shape, tools=tools), tokenizer, network)
    batch = label_batch(policy, labels)
    optimizer = torch.optim.AdamW(
        network.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network.train()
        for _ in range(settings.steps):
            loss = _response_loss(policy, batch.drop_words(settings.word_dropout)).mean()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it unannotated
            optimizer.step()
        network.eval()
    return policy


def label_batch(policy: LocalPolicy, labels: Sequence[Labelled]) -> Batch:
    """The right responses to the labelled messages."""
    plain = SamplingParams()
    texts = [policy.render([{"role": "user", "content": label.text}]) for label in labels]
    return policy.prepare(
        [
            Sample(policy.encode(text).ids, policy.spell(label.tool), (), plain)
            for text, label in zip(texts, labels, strict=True)
        ]
    )


def fit_of(policy: LocalPolicy, labels: Sequence[Labelled]) -> Fit:
    """How well `policy` fits `labels`."""
    with torch.inference_mode():
        loss = _response_loss(policy, label_batch(policy, labels))
    return Fit(float(loss.mean()), float((loss.neg().exp() > 0.5).double().mean()))


def _response_loss(policy: LocalPolicy, batch: Batch) -> Tensor:
    """Cross-entropy (B,) of whole responses, in nats."""
    return -policy.log_probs(batch).sum(dim=1)
