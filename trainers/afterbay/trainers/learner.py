"""Off-policy updates: rewarded responses in, a better policy and the state to go on from out.

In:   a policy, `Rewarded` responses (oldest first), how many of them are new, a seed
Out:  the policy's own weights, changed in place; figures of the run
Never: reads a clock or the environment; on CPU float32 the same inputs give the same bits

Each response is weighed against the policy that gave it by min(bound, pi / mu), recomputed at
every update. The advantage is r - (EMA(r) - margin): a baseline below the mean makes what went
well count for more than what went badly (Arnal et al. 2025, "Asymmetric REINFORCE"), without which
old responses pull the policy below its own start. Weights are those of the policy as it samples;
the gradient goes through dropout, because rewards are noisy and each response is seen many times.
The optimizer starts afresh in every run: docs/decisions/0002-local-policy.md has the figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import torch
from torch import Tensor

from afterbay.trainers.batch import Batch
from afterbay.trainers.estimators import effective_sample_size
from afterbay.trainers.losses import truncated_reinforce
from afterbay.trainers.policy import LocalPolicy
from afterbay.trainers.weights import (
    kl_k3,
    ratio_of,
    sequence_log_ratio,
    truncated,
    truncation_bound,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerSettings:
    """How a training run learns."""

    window: int = 4_000
    """Newest rewarded responses that minibatches are drawn from."""
    batch: int = 128
    """Responses of one update."""
    new_per_round: int = 32
    """New rewards that ask for one round of updates."""
    updates_per_round: int = 4
    learning_rate: float = 1e-3
    weight_decay: float = 0.01
    clip_max: float = 2.0
    """Largest importance weight of a response."""
    margin: float = 0.2
    """How far the baseline lies below the mean reward."""
    reward_decay: float = 0.99
    """Share of the reward mean that an update keeps; it starts at the mean of the window."""
    word_dropout: float = 0.3
    """Share of a prompt's tokens that the gradient does not see in each update."""


@dataclass(frozen=True, slots=True)
class Rewarded:
    """Rewarded responses, oldest first. Made from a slice, read by `improve`."""

    batch: Batch
    behaviour: Tensor
    """(N, T) log-probs under the policy that gave them; 0 past the end."""
    mask: Tensor
    """(N, T) True at tokens that may be trained on."""
    rewards: Tensor
    """(N,) in [0, 1]."""

    def __len__(self) -> int:
        """N."""
        return len(self.batch)

    def take(self, rows: Sequence[int]) -> Rewarded:
        """The given rows, in the given order."""
        index = torch.tensor(rows, dtype=torch.int64)
        return Rewarded(
            self.batch.take(rows), self.behaviour[index], self.mask[index], self.rewards[index]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """Figures of a run. Made by `improve`, kept in the manifest."""

    updates: int
    loss: float
    """Mean over the updates."""
    weight_mean: float
    """Mean truncated weight over the updates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Distance:
    """How far a policy is from the ones that gave the responses. Made by `distance`."""

    kl_per_token_nats: float
    """KL(behaviour || policy), estimator k3, over tokens that may be trained on."""
    ess: float
    """Effective sample size of the responses, on untruncated weights."""
    responses: int


def updates_for(new: int, settings: LearnerSettings) -> int:
    """Updates that `new` rewards ask for."""
    return ceil(new * settings.updates_per_round / settings.new_per_round)


def improve(
    policy: LocalPolicy,
    rewarded: Rewarded,
    *,
    new: int,
    seed: int,
    settings: LearnerSettings,
    before: int = 0,
) -> Gain:
    """Make as many updates as `new` rewards ask for; changes `policy` in place.

    `before` are the updates of the lineage so far: the bound on weights tightens with them.
    """
    window = rewarded.take(range(max(0, len(rewarded) - settings.window), len(rewarded)))
    count = updates_for(new, settings) if len(window) else 0
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        run = _Run(policy, window, settings, before)
        steps = [run.update() for _ in range(count)]
    return Gain(
        updates=count,
        loss=sum(loss for loss, _ in steps) / max(1, count),
        weight_mean=sum(weight for _, weight in steps) / max(1, count),
    )


def distance(policy: LocalPolicy, rewarded: Rewarded, chunk: int = 512) -> Distance:
    """How far `policy` is from the policies that gave the responses."""
    if not len(rewarded):
        return Distance(kl_per_token_nats=0.0, ess=0.0, responses=0)
    ratio = log_ratios(policy, rewarded, chunk)
    whole = sequence_log_ratio(ratio, rewarded.mask)
    return Distance(
        kl_per_token_nats=float(kl_k3(ratio.double(), rewarded.mask)),
        ess=effective_sample_size(ratio_of(whole.double()).numpy()),
        responses=len(rewarded),
    )


def log_ratios(policy: LocalPolicy, rewarded: Rewarded, chunk: int = 512) -> Tensor:
    """log pi - log mu (N, T), without gradients; 0 outside the mask."""
    with torch.inference_mode():
        parts = [
            policy.log_probs(rewarded.batch.take(range(start, min(start + chunk, len(rewarded)))))
            for start in range(0, len(rewarded), chunk)
        ]
        return (torch.cat(parts) - rewarded.behaviour).masked_fill(~rewarded.mask, 0)


class _Run:
    """The updates of one run."""

    def __init__(
        self, policy: LocalPolicy, window: Rewarded, settings: LearnerSettings, before: int
    ) -> None:
        self._policy = policy
        self._window = window
        self._settings = settings
        self._updates = before
        self._reward_mean = float(window.rewards.double().mean()) if len(window) else 0.0
        self._optimizer = torch.optim.AdamW(
            policy.network.parameters(),
            lr=settings.learning_rate,
            weight_decay=settings.weight_decay,
        )

    def update(self) -> tuple[float, float]:
        """One step; gives the loss and the mean weight."""
        picked = torch.randint(len(self._window), (self._settings.batch,))
        rows = self._window.take(picked.tolist())
        weights, advantages = self._weights(rows), rows.rewards - self._baseline(rows)
        loss = truncated_reinforce(self._regularised(rows), rows.mask, weights, advantages)
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it unannotated
        self._optimizer.step()
        self._updates += 1
        return float(loss.detach()), float(weights.mean())

    def _weights(self, rows: Rewarded) -> Tensor:
        """(B,) truncated weights of the policy as it samples."""
        with torch.no_grad():
            log_ratio = self._policy.log_probs(rows.batch) - rows.behaviour
        bound = truncation_bound(self._updates, self._settings.clip_max)
        return truncated(sequence_log_ratio(log_ratio, rows.mask), bound)

    def _baseline(self, rows: Rewarded) -> float:
        """Move the reward mean, and give the baseline below it."""
        kept = self._settings.reward_decay
        self._reward_mean = kept * self._reward_mean + (1 - kept) * float(rows.rewards.mean())
        return self._reward_mean - self._settings.margin

    def _regularised(self, rows: Rewarded) -> Tensor:
        """(B, T) log-probs through dropout; what is descended."""
        self._policy.network.train()
        log_probs = self._policy.log_probs(rows.batch.drop_words(self._settings.word_dropout))
        self._policy.network.eval()
        return log_probs
