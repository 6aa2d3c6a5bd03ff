"""What a policy would have earned, from rewards that another policy's answers got. Pure.

In:   rewards (n,) and importance weights (n,) = target / propensity, never truncated here
Out:  self-normalised estimates of the mean reward, with interval and effective sample size
Refuses: nothing; without rows, or with weights that are all zero, the estimate is NaN

Sources: Swaminathan and Joachims 2015 (SNIPS); Kong 1992 (effective sample size).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Estimate:
    """One policy's estimate. Made by `snips_estimate`, read by the gate."""

    snips: float
    """Self-normalised estimate of the mean reward."""
    half_width: float
    """Half of a two-sided 95 % interval of `snips` (delta method)."""
    ess: float
    """Effective sample size of the untruncated weights, in (0, n]."""
    n: int
    """Rows."""


def snips(rewards: Vector, weights: Vector) -> float:
    """Self-normalised estimate: a weighted mean, so it stays within the rewards' range."""
    total = float(weights.sum())
    return float((weights * rewards).sum() / total) if total > 0 else math.nan


def effective_sample_size(weights: Vector) -> float:
    """(sum w)^2 / sum w^2, in (0, n]; 0 without weight."""
    peak = float(weights.max(initial=0.0))
    if peak == 0:
        return 0.0
    scaled = weights / peak  # squares of the largest ratios would overflow
    return float(scaled.sum()) ** 2 / float(np.square(scaled).sum())


def snips_estimate(rewards: Vector, weights: Vector, z: float = 1.96) -> Estimate:
    """SNIPS with its interval and effective sample size."""
    value, total = snips(rewards, weights), float(weights.sum())
    spread = float(np.square(weights * (rewards - value)).sum()) if total > 0 else math.nan
    half = z * math.sqrt(spread) / total if total > 0 else math.nan
    return Estimate(value, half, effective_sample_size(weights), len(rewards))
