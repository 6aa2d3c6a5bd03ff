"""What a policy would have earned, from rewards that another policy's answers got. Pure.

In:   rewards (n,) and importance weights (n,) = target / propensity, never truncated here
Out:  estimates of the mean reward, effective sample sizes, confidence half-widths
Refuses: nothing; without rows, or with weights that are all zero, the answer is NaN

Sources: Swaminathan and Joachims 2015 (SNIPS); Dudik, Langford, Li 2011 (doubly robust); Kong 1992
(effective sample size); Maurer and Pontil 2009 (empirical Bernstein).
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


def ips(rewards: Vector, weights: Vector) -> float:
    """Inverse propensity estimate: unbiased, and as wide as its largest weight."""
    return float(np.mean(weights * rewards)) if len(rewards) else math.nan


def snips(rewards: Vector, weights: Vector) -> float:
    """Self-normalised estimate: a weighted mean, so it stays within the rewards' range."""
    total = float(weights.sum())
    return float((weights * rewards).sum() / total) if total > 0 else math.nan


def doubly_robust(rewards: Vector, weights: Vector, said: Vector, expected: Vector) -> float:
    """Model of the reward plus the weighted rest; right if either model or weights are.

    `said` (n,): modelled reward of the logged answer; `expected` (n,): of the target policy.
    """
    return float(np.mean(expected + weights * (rewards - said))) if len(rewards) else math.nan


def effective_sample_size(weights: Vector) -> float:
    """(sum w)^2 / sum w^2; NaN without weight."""
    squares = float(np.square(weights).sum())
    return float(weights.sum()) ** 2 / squares if squares > 0 else math.nan


def snips_estimate(rewards: Vector, weights: Vector, z: float = 1.96) -> Estimate:
    """SNIPS with its interval and effective sample size."""
    value, total = snips(rewards, weights), float(weights.sum())
    spread = float(np.square(weights * (rewards - value)).sum()) if total > 0 else math.nan
    half = z * math.sqrt(spread) / total if total > 0 else math.nan
    return Estimate(value, half, effective_sample_size(weights), len(rewards))


def hoeffding(n: int, width: float, delta: float, *, two_sided: bool = True) -> float:
    """Half-width for the mean of n values that lie within a range of `width`."""
    return width * math.sqrt(math.log((2 if two_sided else 1) / delta) / (2 * n))


def empirical_bernstein(
    values: Vector, width: float, delta: float, *, two_sided: bool = True
) -> float:
    """Half-width for the mean of `values` within a range of `width`, from their variance."""
    n, sides = len(values), 4 if two_sided else 2
    log = math.log(sides / delta)
    return math.sqrt(2 * float(values.var(ddof=1)) * log / n) + 7 * width * log / (3 * (n - 1))
