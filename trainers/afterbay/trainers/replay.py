"""From slice rows to what a learner reads: samples, behaviour log-probs, rewards, and refusals.

In:   rows of a slice, its limits, the policy that is to be trained, snapshots for altered rows
Out:  `Replay`, and one `Refusal` for each row that must not be used
Refuses: as values: expired, stale, untrainable, tokenizer, length, nan_logprob and altered rows
Never: guesses a log-prob; an altered row's are computed anew with the snapshot that answered
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor

from afterbay.lakehouse.slices import SliceSpec
from afterbay.trainers.policy import MASK_ID, LocalPolicy, Sample, SamplingParams

COLUMNS = (
    "inference_id",
    "reward_event_id",
    "snapshot_id",
    "tokenizer",
    "tools",
    "prompt_ids",
    "response_ids",
    "response_logprobs",
    "loss_mask",
    "trainable",
    "altered",
    "sampling",
    "reward",
    "reward_topic_id",
    "reward_partition",
    "reward_offset",
    "held_out",
    "lag",
    "age_s",
)
Load = Callable[[str], LocalPolicy | None]
"""The policy of a snapshot id; None if its files are not here any more."""
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Refusal:
    """A row that no trainer may use. Becomes an `experience.dropped.v2` event."""

    inference_id: str
    stage: str
    reason: str
    lag: int


@dataclass(frozen=True, slots=True)
class Replay:
    """N usable rows, oldest reward first. Made by `replay_of`, read by learner and estimators."""

    samples: tuple[Sample, ...]
    behaviour: Tensor
    """(N,) log-prob of the whole response under the policy that gave it, float64."""
    tokens: Tensor
    """(N,) tokens of each response that count."""
    rewards: Tensor
    """(N,) in [0, 1], float64."""
    held_out: Tensor
    """(N,) True where a session is never trained on."""
    new: Tensor
    """(N,) True where the reward is newer than what the parent was trained on."""

    def __len__(self) -> int:
        """N."""
        return len(self.samples)

    def where(self, keep: Tensor) -> Replay:
        """The rows where `keep` (N,) is True, in their order."""
        rows = keep.nonzero().flatten().tolist()
        return Replay(
            tuple(self.samples[row] for row in rows),
            self.behaviour[rows],
            self.tokens[rows],
            self.rewards[rows],
            self.held_out[rows],
            self.new[rows],
        )


def replay_of(
    rows: pa.Table, spec: SliceSpec, tokenizer: str, load: Load, seen: SliceSpec | None
) -> tuple[Replay, list[Refusal]]:
    """Usable rows and refusals; `seen` is what the parent was trained on (None: nothing)."""
    table = sorted(rows.select(list(COLUMNS)).to_pylist(), key=lambda row: row["reward_event_id"])
    refusals: list[Refusal] = []
    kept: list[tuple[Row, Sample, float]] = []
    for row, log_mu in zip(table, _behaviour(table, load), strict=True):
        refused = _refused(row, spec, tokenizer, log_mu)
        if refused is None:
            kept.append((row, _sample(row), log_mu))
        else:
            refusals.append(Refusal(row["inference_id"], *refused, row["lag"]))
    return _replay(kept, seen), refusals


def _replay(kept: Sequence[tuple[Row, Sample, float]], seen: SliceSpec | None) -> Replay:
    ends = {(p.topic_id, p.partition): p.next_offset for p in seen.places} if seen else {}
    new = [
        row["reward_offset"] >= ends.get((row["reward_topic_id"], row["reward_partition"]), 0)
        for row, _, _ in kept
    ]
    return Replay(
        tuple(sample for _, sample, _ in kept),
        torch.tensor([log_mu for _, _, log_mu in kept], dtype=torch.float64),
        torch.tensor([sum(row["loss_mask"]) for row, _, _ in kept], dtype=torch.float64),
        torch.tensor([row["reward"] for row, _, _ in kept], dtype=torch.float64),
        torch.tensor([row["held_out"] for row, _, _ in kept], dtype=torch.bool),
        torch.tensor(new, dtype=torch.bool),
    )


def _refused(row: Row, spec: SliceSpec, tokenizer: str, log_mu: float) -> tuple[str, str] | None:
    """Stage and reason, in the order of design section 8; None if the row may be used."""
    ids = row["response_ids"]
    checks = (
        (row["age_s"] > spec.max_age_s, "slice", "expired"),
        (row["lag"] > spec.max_lag, "slice", "stale"),
        (not row["trainable"] or not ids or row["prompt_ids"] is None, "weigh", "untrainable"),
        (row["tokenizer"] != tokenizer, "weigh", "tokenizer"),
        (not _same_length(row), "weigh", "length"),
        (row["altered"] and not math.isfinite(log_mu), "weigh", "altered"),
        (not math.isfinite(log_mu), "weigh", "nan_logprob"),
    )
    return next(((stage, reason) for bad, stage, reason in checks if bad), None)


def _same_length(row: Row) -> bool:
    parts = (row["response_ids"], row["response_logprobs"], row["loss_mask"])
    return all(part is not None for part in parts) and len({len(part) for part in parts}) == 1


def _behaviour(table: Sequence[Row], load: Load) -> list[float]:
    """Log-prob of each whole response when it was given; NaN where it cannot be known."""
    logged = [_logged(row) for row in table]
    for snapshot in sorted({row["snapshot_id"] for row in table if _recomputable(row)}):
        rows = [n for n, r in enumerate(table) if _recomputable(r) and r["snapshot_id"] == snapshot]
        policy = load(snapshot)
        if policy is None:
            continue
        for row, value in zip(
            rows, log_prob(policy, [_sample(table[n]) for n in rows]), strict=True
        ):
            logged[row] = float(value)
    return logged


def _logged(row: Row) -> float:
    if row["altered"] or not _same_length(row):
        return math.nan
    counted = zip(row["response_logprobs"], row["loss_mask"], strict=True)
    return math.fsum(value for value, counts in counted if counts)


def _recomputable(row: Row) -> bool:
    return bool(row["altered"]) and _same_length(row) and MASK_ID not in row["response_ids"]


def _sample(row: Row) -> Sample:
    sampling = {name: row["sampling"][name] for name in ("temperature", "top_p", "top_k", "min_p")}
    return Sample(
        tuple(row["prompt_ids"]),
        tuple(row["response_ids"]),
        tuple(row["tools"]),
        SamplingParams(**sampling),
    )


def log_prob(policy: LocalPolicy, samples: Sequence[Sample]) -> Tensor:
    """(N,) log-probs of whole responses, float64, without gradients; -inf where impossible."""
    if not samples:
        return torch.zeros(0, dtype=torch.float64)
    with torch.inference_mode():
        batch = policy.prepare(samples)
        total = policy.log_probs(batch).double().sum(dim=1)
        return total.masked_fill(~batch.whole, -torch.inf).clone()
