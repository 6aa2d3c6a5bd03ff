"""Two decisions about a candidate, pure: may it meet customers, may it stay.

In:   the numbers of an off-policy evaluation; the rewards of both arms of a canary
Out:  `Gate`, `Verdict`: yes or no, why, and every number that it was made of
Refuses: nothing; missing or useless numbers are a no
Never: reads a table, a clock or a setting by itself
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, variance
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What one policy would have earned on held-out experience. Made by trainers.offpolicy."""

    snips: float
    """Self-normalised importance sampling estimate of the reward (Swaminathan, Joachims 2015)."""
    ess: float
    """Effective sample size of its untruncated weights, in rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """Whether a candidate may be published. Made by `gate`, shown as a blocking asset check."""

    passed: bool
    why: str
    difference: float
    """SNIPS(candidate) - SNIPS(current), in reward; NaN if either is missing."""
    ess: float
    """The smaller of the two effective sample sizes, in rows."""


def gate(candidate: Estimate, current: Estimate, *, margin: float, least_ess: float) -> Gate:
    """Pass a candidate that is not worse, if there is enough evidence to say so."""
    difference = candidate.snips - current.snips
    ess = min(candidate.ess, current.ess)
    if not math.isfinite(difference) or not ess >= least_ess:
        why = f"too little evidence: effective sample size {ess:.1f}, at least {least_ess:g} asked"
        return Gate(passed=False, why=why, difference=difference, ess=ess)
    passed = difference >= margin
    why = f"difference {difference:+.4f} at effective sample size {ess:.1f}, at least {margin:+g}"
    return Gate(passed=passed, why=why, difference=difference, ess=ess)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What becomes of a candidate. Made by `judge`, published by `policy_promotion`."""

    action: Literal["promoted", "rolled_back"]
    why: str
    candidate_mean: float
    """Mean reward of the candidate's arm; NaN without rewards."""
    current_mean: float
    candidate_n: int
    """Rewards of the candidate's arm."""
    current_n: int
    difference: float
    """candidate_mean - current_mean; NaN if either is."""
    standard_error: float
    """Of the difference, with a variance of its own for each arm (Welch); NaN likewise."""


def judge(candidate: Sequence[float], current: Sequence[float], *, least: int, z: float) -> Verdict:
    """Promote a candidate that is not worse by `z` standard errors; roll back the rest.

    An arm with fewer than `least` rewards proves nothing, and without proof the candidate goes:
    a node that could not load it gave it no traffic, for instance.
    """
    difference, error = _difference(candidate, current)
    if min(len(candidate), len(current)) < least:
        action: Literal["promoted", "rolled_back"] = "rolled_back"
        why = f"{len(candidate)} and {len(current)} rewards, at least {least} of each arm asked"
    elif difference + z * error < 0:
        action = "rolled_back"
        why = f"worse by {-difference:.4f}, more than {z:g} standard errors of {error:.4f}"
    else:
        action = "promoted"
        why = f"difference {difference:+.4f}, standard error {error:.4f}: not worse"
    return Verdict(
        action=action,
        why=why,
        candidate_mean=_mean(candidate),
        current_mean=_mean(current),
        candidate_n=len(candidate),
        current_n=len(current),
        difference=difference,
        standard_error=error,
    )


def canary_is_over(
    rewards: int, elapsed_s: float, *, rewards_asked: int, seconds_asked: float
) -> bool:
    """Whether there is enough to judge, or no more time to wait for it."""
    return rewards >= rewards_asked or elapsed_s >= seconds_asked


def _mean(values: Sequence[float]) -> float:
    return fmean(values) if values else math.nan


def _difference(one: Sequence[float], other: Sequence[float]) -> tuple[float, float]:
    if min(len(one), len(other)) < 2:
        return _mean(one) - _mean(other), math.nan
    error = math.sqrt(variance(one) / len(one) + variance(other) / len(other))
    return fmean(one) - fmean(other), error
