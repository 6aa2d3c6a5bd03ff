"""The distribution that tokens are really sampled from, and drawing from it.

In:   logits (N, K) of what each row may say, which of them are real, its sampling parameters
Out:  log-probs (N, K) of grammar -> temperature -> top-k -> top-p -> min-p, renormalised
Refuses: parameters outside their range, with BadSettings
Never: lets one row's parameters change another row's bits: filters only ever set logits to -inf
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from afterbay.schemas.errors import BadSettings


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How one response is sampled. Same fields as the event's `sampling`."""

    temperature: float = 1.0
    """0 means greedy: all mass on the best token."""
    top_p: float = 1.0
    """Smallest set of best tokens with at least this mass; 1 means off."""
    top_k: int = 0
    """Best tokens kept; 0 means off."""
    min_p: float = 0.0
    """Least probability relative to the best token; 0 means off."""

    def __post_init__(self) -> None:
        if not (self.temperature >= 0 and 0 < self.top_p <= 1 and 0 <= self.min_p <= 1):
            raise BadSettings(
                "sampling: expected temperature >= 0, 0 < top_p <= 1, 0 <= min_p <= 1"
            )
        if self.top_k < 0:
            raise BadSettings("sampling: expected top_k >= 0 (0 is off)")

    @property
    def plain(self) -> bool:
        """True if only the temperature matters."""
        return self.top_p == 1 and self.top_k == 0 and self.min_p == 0


def log_distribution(logits: Tensor, allowed: Tensor, sampling: Sequence[SamplingParams]) -> Tensor:
    """Log-probs (N, K) of the sampled distribution; `allowed` (N, K) is the grammar's mask.

    A row with nothing allowed is NaN throughout.
    """
    scaled = logits.masked_fill(~allowed, -torch.inf)
    temperature = [params.temperature or 1.0 for params in sampling]
    if any(value != 1 for value in temperature):
        scaled = scaled / torch.tensor(temperature).unsqueeze(1)
    drop = torch.zeros_like(allowed)
    for row, params in enumerate(sampling):
        if params.temperature == 0:
            drop[row] = ~_best(scaled[row].detach())
        elif not params.plain:
            drop[row] = ~_kept(scaled[row].detach(), params)
    return torch.log_softmax(scaled.masked_fill(drop, -torch.inf), dim=-1)


def _best(scaled: Tensor) -> Tensor:
    keep = torch.zeros_like(scaled, dtype=torch.bool)
    keep[scaled.argmax()] = True
    return keep


def _kept(scaled: Tensor, params: SamplingParams) -> Tensor:
    """Which slots (K,) of one row remain after top-k, top-p and min-p."""
    order = torch.sort(scaled, descending=True, stable=True).indices
    ranked = scaled[order]
    keep = torch.isfinite(ranked)
    if params.top_k:
        keep[params.top_k :] = False
    if params.top_p < 1:
        mass = torch.softmax(ranked.masked_fill(~keep, -torch.inf), dim=-1)
        # mass before a token, so that the token which crosses top_p is kept
        keep &= (mass.cumsum(0) - mass) < params.top_p
    if params.min_p:
        mass = torch.softmax(ranked.masked_fill(~keep, -torch.inf), dim=-1)
        keep &= mass >= params.min_p * mass[0]
    kept = torch.zeros_like(keep)
    kept[order] = keep
    return kept


def draw(log_probs: Tensor, dice: random.Random) -> int:
    """A slot of one row of log-probs (K,), by inversion in double precision."""
    mass = np.cumsum(np.exp(log_probs.double().numpy()))
    found = int(np.searchsorted(mass, dice.random() * mass[-1], side="right"))
    # rounding at the very top may point past the last slot that has mass
    return min(found, int(np.searchsorted(mass, mass[-1], side="left")))
