"""The tokens that the grammar leaves at some positions, laid out for one matrix product.

In:   for each position, the token ids allowed there
Out:  `Choices`: the distinct tokens of all positions, and each position's own ones in slots
Never: lets a position's slots depend on its neighbours': they are its allowed ids, ascending, and
       the padding is a whole number of vector registers, so sums over slots round alike
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from afterbay.trainers.network import BLOCK


@dataclass(frozen=True, slots=True)
class Choices:
    """What may come at M positions. Made by `choices_of`, read where logits are made."""

    tokens: Tensor
    """(C,) distinct token ids, ascending."""
    column: Tensor
    """(M, K) index into `tokens` of each slot; 0 where a slot is padding."""
    allowed: Tensor
    """(M, K) False where a slot is padding."""

    def gather(self, logits: Tensor, position: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (N, C) of N positions (N,) -> logits and mask of their slots, (N, K) each."""
        return logits.gather(1, self.column[position]), self.allowed[position]


def choices_of(allowed: Sequence[tuple[int, ...]]) -> Choices:
    """The choices of positions that allow these token ids (each ascending)."""
    tokens = sorted({token for ids in allowed for token in ids})
    column_of = {token: column for column, token in enumerate(tokens)}
    widest = max((len(ids) for ids in allowed), default=1)
    width = widest + -widest % BLOCK
    column = torch.zeros((len(allowed), width), dtype=torch.int64)
    mask = torch.zeros((len(allowed), width), dtype=torch.bool)
    for row, ids in enumerate(allowed):
        column[row, : len(ids)] = torch.tensor([column_of[token] for token in ids])
        mask[row, : len(ids)] = True
    return Choices(torch.tensor(tokens, dtype=torch.int64), column, mask)
