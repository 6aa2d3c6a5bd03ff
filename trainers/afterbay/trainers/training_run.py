"""One training run: slice -> weigh -> drop -> improve -> sealed snapshot.

In:   a home, a slice, a verified parent, a run id
Out:  a snapshot folder (policy, manifest, signature), drop events, `Outcome`
Refuses: a slice that leaves nothing to train on, a parent that is not what was signed (BadState)
Never: trains on held-out sessions; publishes

The same slice and parent give the same weights, bit by bit, on CPU float32.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from afterbay.lakehouse import slices
from afterbay.lakehouse.positions import Positions
from afterbay.schemas.clock import Clock
from afterbay.schemas.errors import BadState
from afterbay.streams.signing import Ed25519Signer, Ed25519Verifier
from afterbay.streams.snapshots import Manifest, seal_snapshot, verify_snapshot
from afterbay.trainers.drops import tell_drops
from afterbay.trainers.home import Home
from afterbay.trainers.learner import (
    Distance,
    Gain,
    LearnerSettings,
    Rewarded,
    distance,
    improve,
)
from afterbay.trainers.policy import load_policy, save_policy
from afterbay.trainers.replay import count_new, replay_of, rewarded

UPDATES = "updates_of_lineage"
"""Metric of a manifest: updates since the warm start."""
LEARNER = "learner"
"""Key of the learner's settings beside the slice in a manifest's `trained_on`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What one run is to do. Made by the program from its arguments."""

    run_id: str
    spec: slices.SliceSpec
    parent: Path
    out: Path
    """Folder of the new snapshot; its name is the snapshot's id."""
    settings: LearnerSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a run made. Printed by the program and reported to Dagster."""

    manifest: Manifest
    dropped_now: int
    """Drop events that went out by this run; fewer than refused if it is a repetition."""

    def figures(self) -> dict[str, Any]:
        """As one flat object."""
        return {
            "snapshot_id": self.manifest.snapshot_id,
            "parent": self.manifest.parent,
            "digest": self.manifest.digest,
            "dropped_now": self.dropped_now,
            **self.manifest.metrics,
        }


def train(home: Home, order: Order, clock: Clock, tell: Callable[[str], None]) -> Outcome:
    """Do one run; `tell` gets a line at each stage."""
    parent = verify_snapshot(order.parent, Ed25519Verifier.load(home.keys))
    policy = load_policy(order.parent)
    replay = replay_of(slices.read(home.lake, order.spec), order.spec, policy, home.logged_policy)
    tell(f"slice of {order.spec.rows} rows: {len(replay.rows)} usable")
    dropped = tell_drops(home.address, order.spec.policy, order.run_id, replay.refusals, clock)
    trained = replay.trained
    if not trained:
        raise BadState(
            f"slice of {order.spec.rows} rows, {len(replay.refusals)} of them refused: nothing is"
            " left to train on; wait for more experience, or widen the slice"
        )
    past = int(parent.metrics.get(UPDATES, 0))
    new = count_new(trained, _seen(parent))
    if not new:
        raise BadState(
            f"slice of {order.spec.rows} rows: its parent has seen all of their rewards, and a"
            " snapshot without updates would be its parent under another name; wait for more"
        )
    rows = rewarded(policy, trained[-order.settings.window :])
    before = distance(policy, rows)
    gain = improve(
        policy,
        rows,
        new=new,
        seed=_seed(order.spec),
        settings=order.settings,
        before=past,
    )
    tell(f"{gain.updates} updates for {new} new rewards")
    save_policy(order.out, policy)
    manifest = seal_snapshot(
        order.out,
        snapshot_id=order.out.name,
        policy=order.spec.policy,
        parent=parent.snapshot_id,
        tokenizer=policy.tokenizer_fingerprint,
        trained_on={**msgspec.to_builtins(order.spec), LEARNER: asdict(order.settings)},
        metrics={
            **_metrics(rows, new, gain, before, distance(policy, rows)),
            UPDATES: past + gain.updates,
            "rows_refused": len(replay.refusals),
            "rows_held_out": len(replay.held_out),
        },
        signer=Ed25519Signer.load(home.keys),
        now=clock.now(),
    )
    return Outcome(manifest=manifest, dropped_now=dropped)


def _seen(parent: Manifest) -> Positions:
    """What the parent was trained on, as next offsets; nothing for a warm start."""
    if parent.trained_on is None:
        return {}
    return slices.from_json(msgspec.json.encode(parent.trained_on)).positions


def _seed(spec: slices.SliceSpec) -> int:
    """A seed of the slice's own: every slice of one lineage has the same `spec.seed`."""
    digest = sha256(f"{spec.seed}:{spec.digest}".encode()).digest()
    return int.from_bytes(digest[:7])


def _metrics(
    rows: Rewarded, new: int, gain: Gain, before: Distance, after: Distance
) -> dict[str, float]:
    return {
        "updates": gain.updates,
        "loss": gain.loss,
        "weight_mean": gain.weight_mean,
        "reward_mean": float(rows.rewards.double().mean()),
        "rewards_new": new,
        "rows": len(rows),
        "kl_per_token_nats_before": before.kl_per_token_nats,
        "kl_per_token_nats": after.kl_per_token_nats,
        "ess_before": before.ess,
        "ess": after.ess,
    }
