"""Answering prompts token by token, several at once.

In:   `PromptSpec`s, a network and a grammar for each
Out:  `SampledToken`s, one per unfinished row and step
Never: lets one row's draws depend on the others: each row has its own seed
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from afterbay.trainers.batch import bag, join
from afterbay.trainers.choices import choices_of
from afterbay.trainers.grammar import ROOT, Grammar
from afterbay.trainers.network import Network
from afterbay.trainers.sampling import SamplingParams, draw, log_distribution
from afterbay.trainers.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSpec:
    """One prompt to answer. Made by the node."""

    ids: tuple[int, ...]
    tools: tuple[str, ...] = ()
    """Tools offered; empty means the policy's own."""
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    """Makes the draws repeatable; None draws a seed from the policy's entropy."""

    @property
    def sampling(self) -> SamplingParams:
        """The parameters as the sampler takes them."""
        return SamplingParams(self.temperature, self.top_p, self.top_k, self.min_p)


@dataclass(frozen=True, slots=True)
class SampledToken:
    """One token of one row. Made by `Generation.step`, read by the node."""

    row: int
    """Index of the prompt in the call to `start`."""
    token_id: int
    logprob: float
    """Natural log-prob under the distribution really sampled from."""
    text: str
    """What the token adds to the response; empty for the end token."""
    end: int
    """End of the response so far, in code points."""
    finished: bool
    """True for the row's last token."""


@dataclass(slots=True)
class _Row:
    """Where one response stands."""

    index: int
    grammar: Grammar
    sampling: SamplingParams
    dice: random.Random
    node: int = ROOT
    length: int = 0


class Generation:
    """The answers to one call of `start`; `step` until `done`."""

    def __init__(
        self,
        network: Network,
        tokenizer: Tokenizer,
        prompts: Sequence[PromptSpec],
        grammars: Sequence[Grammar],
        seeds: Sequence[int],
    ) -> None:
        self._network = network
        self._tokenizer = tokenizer
        self._rows = [
            _Row(row, grammar, prompt.sampling, random.Random(seed))  # noqa: S311  # not a secret
            for row, (prompt, grammar, seed) in enumerate(
                zip(prompts, grammars, seeds, strict=True)
            )
        ]
        if not prompts:
            return
        with torch.inference_mode():
            self._prompt = network.trunk.prompt(*join([bag(prompt.ids) for prompt in prompts]))
            self._said = torch.zeros(len(prompts), network.shape.embedding)

    @property
    def done(self) -> bool:
        """True if every row has ended."""
        return not self._rows

    def step(self) -> list[SampledToken]:
        """One more token for every row that has not ended."""
        with torch.inference_mode():
            open_rows = [row for row in self._rows if len(row.grammar.allowed(row.node)) > 1]
            log_probs = dict(zip([r.index for r in open_rows], self._score(open_rows), strict=True))
            sampled = [self._advance(row, log_probs.get(row.index)) for row in self._rows]
        finished = {token.row for token in sampled if token.finished}
        self._rows = [row for row in self._rows if row.index not in finished]
        return sampled

    def _score(self, rows: Sequence[_Row]) -> list[Tensor]:
        """Log-probs (K,) of what each row may say, for rows that have a choice."""
        if not rows:
            return []
        index = torch.tensor([row.index for row in rows])
        choices = choices_of([row.grammar.allowed(row.node) for row in rows])
        logits = self._network.logits(self._prompt[index], self._said[index], choices.tokens)
        slots, allowed = choices.gather(logits, torch.arange(len(rows)))
        return list(log_distribution(slots, allowed, [row.sampling for row in rows]))

    def _advance(self, row: _Row, log_probs: Tensor | None) -> SampledToken:
        # where the grammar leaves one token it is certain, whatever the network says
        slot = 0 if log_probs is None else draw(log_probs, row.dice)
        log_prob = 0.0 if log_probs is None else float(log_probs[slot])
        token_id = row.grammar.allowed(row.node)[slot]
        row.node = row.grammar.next(row.node, token_id)
        said = self._network.trunk.said.weight[token_id + 1]
        self._said[row.index] = self._said[row.index] / 2 + said
        text = self._tokenizer.piece(token_id)
        row.length += len(text)
        finished = token_id == self._tokenizer.end_id
        return SampledToken(row.index, token_id, log_prob, text, row.length, finished)
