"""Importance weights: how much a response counts that another policy gave.

In:   log ratios, log pi - log mu, (B, T) with a mask (B, T), or of whole responses (B,)
Out:  truncated weights for losses, whole ones for estimates; KL for reports
Never: counts a position whose mask is 0

Truncated importance sampling: Ionides 2008. k3: Schulman 2020, "Approximating KL divergence".
"""

from __future__ import annotations

import torch
from torch import Tensor

_LARGEST_LOG_RATIO = 80.0
"""exp of it still fits float32."""


def sequence_log_ratio(log_ratio: Tensor, mask: Tensor) -> Tensor:
    """Log ratio of whole responses: (B, T), (B, T) -> (B,)."""
    return log_ratio.masked_fill(~mask, 0).sum(dim=1)


def ratio_of(log_ratio: Tensor) -> Tensor:
    """exp(log_ratio), finite however large it is."""
    return log_ratio.clamp(max=_LARGEST_LOG_RATIO).exp()


def truncated(log_ratio: Tensor, bound: float) -> Tensor:
    """min(bound, exp(log_ratio)), of any shape."""
    return ratio_of(log_ratio).clamp(max=bound)


def truncation_bound(step: int, clip_max: float) -> float:
    """min(clip_max, max(1, 100 * (1 - step / 100_000))): tighter as a lineage grows old."""
    return min(clip_max, max(1.0, 100.0 * (1.0 - step / 100_000)))


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean of `values` where `mask` is true; 0 if it never is."""
    return values.masked_fill(~mask, 0).sum() / mask.sum().clamp(min=1)


def kl_k3(log_ratio: Tensor, mask: Tensor) -> Tensor:
    """KL(mu || pi) per token, nats: mean of ratio - 1 - log ratio. Unbiased, never negative."""
    return masked_mean(torch.expm1(log_ratio.clamp(max=_LARGEST_LOG_RATIO)) - log_ratio, mask)
