"""Publish a warm start: seal it, tell everybody, and promote it.

In:   a folder with a policy's files below the home's snapshots, figures of the warm start
Out:  manifest and signature in the folder; events `published` and `promoted` in one transaction
Never: tells twice of one snapshot
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from afterbay.schemas import ids
from afterbay.schemas.clock import Clock
from afterbay.streams.arms import Action
from afterbay.streams.signing import Ed25519Signer, ensure_policy_keys
from afterbay.streams.snapshots import Manifest, publish, seal_snapshot, snapshot_event, uri_of
from afterbay.trainers.home import Home

_ACTIONS: tuple[Action, ...] = ("published", "promoted")


def seal_first(
    home: Home,
    folder: Path,
    *,
    policy: str,
    tokenizer: str,
    metrics: Mapping[str, float],
    clock: Clock,
) -> Manifest:
    """Sign a warm start with the home's key, made on first use; it has no parent and no slice."""
    ensure_policy_keys(home.keys)
    return seal_snapshot(
        folder,
        snapshot_id=folder.name,
        policy=policy,
        parent=None,
        tokenizer=tokenizer,
        trained_on=None,
        metrics=metrics,
        signer=Ed25519Signer.load(home.keys),
        now=clock.now(),
    )


def publish_first(home: Home, folder: Path, manifest: Manifest, clock: Clock) -> int:
    """Tell of a sealed warm start, and promote it over whatever served; gives the events sent."""
    events = [
        snapshot_event(
            folder,
            manifest,
            action,
            event_id=ids.new_id(clock.now()),
            uri=uri_of(folder, home.root),
        )
        for action in _ACTIONS
    ]
    return len(publish(home.address, events, f"warmstart/{manifest.snapshot_id}", clock))
