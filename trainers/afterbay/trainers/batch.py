"""Responses ready to be weighed: what a policy needs to give their log-probs, as tensors.

In:   `Sample`s (token ids, tools, sampling parameters)
Out:  `Batch`, rows of which can be taken again and again without preparing them anew
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from afterbay.trainers.choices import Choices, choices_of
from afterbay.trainers.grammar import DEAD, Grammar, grammar_of
from afterbay.trainers.sampling import SamplingParams
from afterbay.trainers.tokenizer import Tokenizer

FORCED = -1
"""Node index of a position where there is nothing to choose, or nothing to say."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One response to one prompt, in tokens. Made from experience or from labels."""

    prompt_ids: tuple[int, ...]
    """-1 where masked."""
    response_ids: tuple[int, ...]
    """End token included; -1 where masked."""
    tools: tuple[str, ...]
    """Tools offered; empty means the policy's own."""
    sampling: SamplingParams


@dataclass(frozen=True, slots=True)
class Batch:
    """B responses of at most T tokens. Made by `prepare`, read by `Policy.log_probs`."""

    prompts: tuple[Tensor, ...]
    """B bags of distinct prompt indices (token id + 1, 0 for masked)."""
    response: Tensor
    """(B, T) indices (token id + 1, 0 for masked or past the end)."""
    node: Tensor
    """(B, T) row of `choices` where the grammar leaves a choice, else FORCED."""
    slot: Tensor
    """(B, T) slot of that row which was chosen."""
    valid: Tensor
    """(B, T) True where a token stands and the grammar knows how it came about."""
    choices: Choices
    """What may come at each grammar node that leaves a choice."""
    sampling: tuple[SamplingParams, ...]

    def __len__(self) -> int:
        """B."""
        return len(self.prompts)

    def drop_words(self, share: float) -> Batch:
        """A random part of each prompt left out, by torch's seed; at least one token stays."""
        lengths = [len(prompt) for prompt in self.prompts]
        ends = torch.tensor(lengths).cumsum(0)
        keep = torch.tensor_split(torch.rand(sum(lengths)) >= share, ends[:-1])
        kept = [prompt[some] for prompt, some in zip(self.prompts, keep, strict=True)]
        return replace(
            self,
            prompts=tuple(
                some if len(some) else whole for some, whole in zip(kept, self.prompts, strict=True)
            ),
        )

    def take(self, rows: Sequence[int]) -> Batch:
        """The given rows, in the given order."""
        index = torch.tensor(rows, dtype=torch.int64)
        return Batch(
            tuple(self.prompts[row] for row in rows),
            self.response[index],
            self.node[index],
            self.slot[index],
            self.valid[index],
            self.choices,
            tuple(self.sampling[row] for row in rows),
        )


def bag(prompt_ids: Sequence[int]) -> Tensor:
    """Distinct indices of a prompt, ascending; an empty prompt reads as one masked token."""
    ids = np.unique(np.asarray(prompt_ids, dtype=np.int64) + 1)
    return torch.from_numpy(ids if len(ids) else np.zeros(1, dtype=np.int64))


def join(bags: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Bags as flat indices and the start of each bag."""
    lengths = torch.tensor([0] + [len(one) for one in bags[:-1]], dtype=torch.int64)
    return torch.cat(list(bags)), lengths.cumsum(0)


class _Nodes:
    """Rows of `Choices` by (grammar, node), in the order they were first met."""

    def __init__(self) -> None:
        self._rows: dict[tuple[int, int], int] = {}
        self._allowed: list[tuple[int, ...]] = []

    def find(self, grammar: Grammar, node: int, token_id: int) -> tuple[int, int]:
        """Row and slot of a choice; FORCED where there is none."""
        allowed = grammar.allowed(node)
        if len(allowed) < 2:
            return FORCED, 0
        row = self._rows.setdefault((id(grammar), node), len(self._allowed))
        if row == len(self._allowed):
            self._allowed.append(allowed)
        return row, allowed.index(token_id)

    def choices(self) -> Choices:
        """All rows."""
        return choices_of(self._allowed)


def prepare(
    samples: Sequence[Sample], tokenizer: Tokenizer, own_tools: tuple[str, ...], max_tokens: int
) -> Batch:
    """A batch of all samples; positions after a masked or impossible token are not valid."""
    width = max((len(sample.response_ids) for sample in samples), default=1)
    nodes = _Nodes()
    response = np.zeros((len(samples), width), dtype=np.int64)
    node = np.full((len(samples), width), FORCED, dtype=np.int64)
    slot = np.zeros((len(samples), width), dtype=np.int64)
    valid = np.zeros((len(samples), width), dtype=np.bool_)
    grammars = [grammar_of(tokenizer, s.tools or own_tools, max_tokens) for s in samples]
    for row, (sample, grammar) in enumerate(zip(samples, grammars, strict=True)):
        ids = sample.response_ids
        response[row, : len(ids)] = np.asarray(ids, dtype=np.int64) + 1
        for position, at in enumerate(grammar.walk(ids)):
            if grammar.next(at, ids[position]) != DEAD:
                valid[row, position] = True
                node[row, position], slot[row, position] = nodes.find(grammar, at, ids[position])
    return Batch(
        tuple(bag(sample.prompt_ids) for sample in samples),
        torch.from_numpy(response),
        torch.from_numpy(node),
        torch.from_numpy(slot),
        torch.from_numpy(valid),
        nodes.choices(),
        tuple(sample.sampling for sample in samples),
    )
