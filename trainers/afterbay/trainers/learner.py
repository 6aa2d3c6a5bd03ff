"""Off-policy updates: rewarded responses in, a better policy and the state to go on from out.

In:   a policy, `Rewarded` responses (oldest first), how many of them are new, a seed
Out:  the policy's own weights, changed in place; `Progress`; figures of the run
Never: reads a clock or the environment; on CPU float32 the same inputs give the same bits

Each response is weighed against the policy that gave it by min(bound, pi / mu), recomputed at
every update. The advantage is r - (EMA(r) - margin): a baseline below the mean makes what went
well count for more than what went badly (Arnal et al. 2025, "Asymmetric REINFORCE"), without which
old responses pull the policy below its own start.
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
from afterbay.trainers.progress import Progress
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
    updates_per_round: int = 2
    learning_rate: float = 2e-3
    weight_decay: float = 0.01
    clip_max: float = 2.0
    """Largest importance weight of a response."""
    margin: float = 0.2
    """How far the baseline lies below the mean reward."""
    reward_decay: float = 0.99
    """Share of the reward mean that an update keeps."""


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
    reward_mean: float
    """The moving mean at the end."""
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
    progress: Progress,
    seed: int,
    settings: LearnerSettings,
) -> Gain:
    """Make as many updates as `new` rewards ask for; changes `policy` and `progress` in place."""
    optimizer = _optimizer(policy, progress, settings)
    chance = torch.Generator().manual_seed(seed)
    first = max(0, len(rewarded) - settings.window)
    losses, means = [], []
    for _ in range(updates_for(new, settings) if len(rewarded) else 0):
        picked = torch.randint(first, len(rewarded), (settings.batch,), generator=chance)
        loss, mean = _update(policy, rewarded.take(picked.tolist()), progress, settings, optimizer)
        losses.append(loss)
        means.append(mean)
    progress.moments = _moments(policy, optimizer)
    return Gain(
        updates=len(losses),
        loss=sum(losses) / max(1, len(losses)),
        reward_mean=progress.reward_mean or 0.0,
        weight_mean=sum(means) / max(1, len(means)),
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


def _update(
    policy: LocalPolicy,
    picked: Rewarded,
    progress: Progress,
    settings: LearnerSettings,
    optimizer: torch.optim.Optimizer,
) -> tuple[float, float]:
    """One step; gives the loss and the mean weight."""
    log_probs = policy.log_probs(picked.batch)
    ratio = sequence_log_ratio(log_probs.detach() - picked.behaviour, picked.mask)
    weights = truncated(ratio, truncation_bound(progress.updates, settings.clip_max))
    baseline = _baseline(progress, float(picked.rewards.mean()), settings)
    loss = truncated_reinforce(log_probs, picked.mask, weights, picked.rewards - baseline)
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it unannotated
    optimizer.step()
    progress.updates += 1
    return float(loss.detach()), float(weights.mean())


def _baseline(progress: Progress, mean: float, settings: LearnerSettings) -> float:
    """Move the reward mean, and give the baseline below it."""
    kept = settings.reward_decay
    before = progress.reward_mean
    progress.reward_mean = mean if before is None else kept * before + (1 - kept) * mean
    return progress.reward_mean - settings.margin


def _optimizer(
    policy: LocalPolicy, progress: Progress, settings: LearnerSettings
) -> torch.optim.Optimizer:
    """AdamW where the last run left it."""
    parameters = dict(policy.network.named_parameters())
    optimizer = torch.optim.AdamW(
        parameters.values(), lr=settings.learning_rate, weight_decay=settings.weight_decay
    )
    for key, value in progress.moments.items():
        name, _, moment = key.rpartition(".")
        optimizer.state[parameters[name]][moment] = value.clone()
    return optimizer


def _moments(policy: LocalPolicy, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    return {
        f"{name}.{moment}": value
        for name, parameter in policy.network.named_parameters()
        for moment, value in optimizer.state[parameter].items()
    }
