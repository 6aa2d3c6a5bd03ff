"""What a candidate would have earned on held-out sessions, beside the policy it would replace.

In:   a slice, two snapshot folders
Out:  `Comparison`: self-normalised estimates with bounds and effective sample size, and the KL
Refuses: a snapshot that is not what was signed (BadState)
Never: looks at rows that a training has seen; truncates a weight; drops a row by an event
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from afterbay.lakehouse import slices
from afterbay.streams.signing import Ed25519Verifier
from afterbay.streams.snapshots import verify_snapshot
from afterbay.trainers.estimators import Estimate, snips_estimate
from afterbay.trainers.home import Home
from afterbay.trainers.learner import Rewarded, log_ratios
from afterbay.trainers.policy import LocalPolicy, load_policy
from afterbay.trainers.replay import replay_of, rewarded
from afterbay.trainers.weights import kl_k3, ratio_of, sequence_log_ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two policies on the same held-out rows. Made by `compare`, read by the gate."""

    rows: int
    """Held-out rows that could be used."""
    logged_reward: float | None
    """Mean reward that their answers got; None without rows."""
    candidate: Estimate
    current: Estimate
    candidate_kl_per_token_nats: float
    """KL(behaviour || candidate) on these rows, estimator k3."""
    current_kl_per_token_nats: float

    def figures(self) -> dict[str, Any]:
        """As JSON: NaN, where nothing could be estimated, as null."""
        found: dict[str, Any] = _without_nan(asdict(self))
        return found


def compare(home: Home, spec: slices.SliceSpec, candidate: Path, current: Path) -> Comparison:
    """Estimate both policies on the held-out rows of the slice."""
    verifier = Ed25519Verifier.load(home.keys)
    for folder in (candidate, current):
        verify_snapshot(folder, verifier)
    ours, theirs = load_policy(candidate), load_policy(current)
    table = slices.read(home.lake, spec)
    held_out = table.filter(table.column("held_out"))
    rows = rewarded(theirs, replay_of(held_out, spec, theirs, home.logged_policy).held_out)
    return Comparison(
        rows=len(rows),
        logged_reward=float(rows.rewards.double().mean()) if len(rows) else None,
        candidate=estimate(ours, rows),
        current=estimate(theirs, rows),
        candidate_kl_per_token_nats=_kl(ours, rows),
        current_kl_per_token_nats=_kl(theirs, rows),
    )


def estimate(policy: LocalPolicy, rows: Rewarded) -> Estimate:
    """What `policy` would have earned on rows that others answered."""
    if not len(rows):
        return snips_estimate(np.zeros(0), np.zeros(0))
    whole = sequence_log_ratio(log_ratios(policy, rows), rows.mask).double()
    return snips_estimate(rows.rewards.double().numpy(), ratio_of(whole).numpy())


def _kl(policy: LocalPolicy, rows: Rewarded) -> float:
    return float(kl_k3(log_ratios(policy, rows).double(), rows.mask)) if len(rows) else 0.0


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(one) for key, one in value.items()}
    return None if isinstance(value, float) and not np.isfinite(value) else value
