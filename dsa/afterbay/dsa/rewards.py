"""The reward unit: opinions about inferences in, one number in [0, 1] per inference out. Pure.

In:   columns of scored opinions, grouped by inference (numpy), or a reward
Out:  `Folded` columns, one entry per inference; the label of a reward's range
Refuses: scores and rewards outside [0, 1] or NaN, edges out of order, with ValueError
Never: reads a clock, a table or a setting; the same columns give the same bits

The function is a weighted mean of source means: each source (person, model, rule) counts once,
however many opinions it sent, and weights are renormalised over the sources that spoke.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

RANGES = ("low", "mid", "high")
"""Labels of the reward ranges, ascending."""


def _content_id(name: str, content: object) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


@dataclass(frozen=True, slots=True)
class SourceMean:
    """Weighted mean of source means. Read by the rewarder."""

    weights: tuple[tuple[str, float], ...] = (("person", 0.6), ("model", 0.25), ("rule", 0.15))
    """Weight of each source that may speak; positive."""
    default: float = 0.5
    """Reward of an inference nobody spoke about."""

    @property
    def function_id(self) -> str:
        """Id made from the function's content: the same weights give the same id anywhere."""
        return _content_id("source-mean", [self.weights, self.default])

    @property
    def sources(self) -> tuple[str, ...]:
        """Sources in the order of the columns of `Folded.values`."""
        return tuple(name for name, _ in self.weights)

    def fold(
        self, inference: NDArray[np.int64], source: NDArray[np.int64], score: NDArray[np.float64]
    ) -> Folded:
        """Rewards of inferences 0..max(inference), from n opinions.

        `inference` (n,) is the group of each opinion, `source` (n,) its index in `sources`,
        `score` (n,) in [0, 1]. A group without opinions gets the default.
        """
        _check_unit_interval("score", score)
        groups = int(inference.max()) + 1 if len(inference) else 0
        width = len(self.weights)
        cell = inference * width + source
        counts = np.bincount(cell, minlength=groups * width).reshape(groups, width)
        sums = np.bincount(cell, weights=score, minlength=groups * width).reshape(groups, width)
        values = np.divide(sums, counts, out=np.zeros((groups, width)), where=counts > 0)
        weights = np.where(counts > 0, np.array([weight for _, weight in self.weights]), 0.0)
        total = weights.sum(axis=1, keepdims=True)
        shares = np.divide(weights, total, out=np.zeros((groups, width)), where=total > 0)
        rewards = np.where(total[:, 0] > 0, (values * shares).sum(axis=1), self.default)
        # a mean of numbers in [0, 1] may leave it by one rounding
        return Folded(np.clip(rewards, 0.0, 1.0), values, shares, counts.sum(axis=1))


@dataclass(frozen=True, slots=True)
class Folded:
    """Rewards of m inferences. Made by `SourceMean.fold`, read by the rewarder."""

    rewards: NDArray[np.float64]
    """(m,) in [0, 1]."""
    values: NDArray[np.float64]
    """(m, sources): mean score of each source; 0 where it did not speak."""
    shares: NDArray[np.float64]
    """(m, sources): renormalised weights; rows sum to 1, or to 0 where nobody spoke."""
    counts: NDArray[np.int64]
    """(m,): opinions folded in."""


@dataclass(frozen=True, slots=True)
class Edges:
    """Where `mid` and `high` begin. Read by the bucketer and by whoever filters by range."""

    mid: float = 0.3
    """Smallest reward that is `mid`."""
    high: float = 0.7
    """Smallest reward that is `high`."""

    def __post_init__(self) -> None:
        if not 0 < self.mid < self.high <= 1:
            raise ValueError(
                f"reward range edges: {self.mid} and {self.high}; expected 0 < mid < high <= 1"
            )

    @property
    def edges_id(self) -> str:
        """Id made from the edges' content."""
        return _content_id("edges", [self.mid, self.high])

    def range_of(self, rewards: NDArray[np.float64]) -> NDArray[np.str_]:
        """Labels (m,) of rewards (m,): low [0, mid), mid [mid, high), high [high, 1]."""
        _check_unit_interval("reward", rewards)
        found = np.searchsorted(np.array([self.mid, self.high]), rewards, side="right")
        labels: NDArray[np.str_] = np.array(RANGES)[found]
        return labels


def _check_unit_interval(what: str, values: NDArray[np.float64]) -> None:
    bad = ~((values >= 0) & (values <= 1))  # NaN compares false, so it is bad too
    if bad.any():
        raise ValueError(
            f"{what}: {int(bad.sum())} of {len(values)} values are NaN or outside [0, 1]"
        )
