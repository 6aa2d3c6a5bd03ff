"""Which snapshots serve: the fold of a policy's `policy.snapshot.v2` events.

In:   the events of one policy, in the order of their partition (key = policy)
Out:  `ArmState`: current and candidate snapshot, the split, and every snapshot's standing
Refuses: nothing; every sequence of events has a state, an event that makes no sense changes none
Never: looks at a clock, a file or a node; whether a node has loaded a snapshot is not known here

The rules, one per action:

* `published`: the snapshot is known; it serves nobody yet.
* `canary`: it becomes the candidate with the event's split. It replaces another candidate.
  Without a current it serves nobody, because there is nothing to compare it with. The current one
  cannot be its own candidate.
* `promoted`: it becomes the current one, and the one before is what a rollback returns to.
* `rolled_back`: a candidate leaves; a current one gives way to the newest snapshot that was current
  before it and was neither rolled back nor retired. Promoting it again is possible.
* `retired`: as `rolled_back`, and final: no later event brings it back.

An event id counts once, so a doubled event changes nothing, wherever it comes. The first event of a
snapshot fixes its digest; a later one with another digest is ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Literal

from afterbay.schemas.events import PolicySnapshot

Action = Literal["published", "canary", "promoted", "rolled_back", "retired"]
Standing = Literal["published", "candidate", "current", "former", "rolled_back", "retired"]
CURRENT = "current"
CANDIDATE = "candidate"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot that events told of. Made by the fold, read by scheduler, nodes and gates."""

    snapshot_id: str
    policy: str
    digest: str
    """SHA-256 (hex) of its weights."""
    uri: str
    """Where its folder lies; `snapshots.folder_of` finds it."""
    parent: str | None
    """Snapshot it was trained from; None for a warm start."""
    manifest: str
    """Signed manifest, canonical JSON text."""
    signature: str
    """Base64 Ed25519 signature of the manifest."""


@dataclass(frozen=True, slots=True)
class Share:
    """One arm that serves. Read by the scheduler, which gives it to sessions by salted hash."""

    arm: str
    """`current` or `candidate`."""
    probability: float
    """Share of sessions, in (0, 1]; the shares of a state sum to 1."""
    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class ArmState:
    """Where a policy stands after some events. Made by `fold_arms`; equal events, equal state."""

    current: Snapshot | None = None
    """What serves everybody whom no canary takes; None before the first promotion."""
    candidate: Snapshot | None = None
    """What is being tried; None if nothing is."""
    split: float = 0.0
    """Share of sessions for the candidate, in [0, 1]; 0 without one."""
    canary_event_id: str | None = None
    """The event that began the canary; its UUIDv7 tells when."""
    snapshots: Mapping[str, Snapshot] = field(default_factory=dict)
    """Every snapshot told of, by id, in the order of its first event."""
    standing: Mapping[str, Standing] = field(default_factory=dict)
    """Where each of them stands."""
    published: tuple[str, ...] = ()
    """Ids of the published ones in order: lag is counted in them."""
    history: tuple[str, ...] = ()
    """Ids that were current before, oldest first; a rollback returns to the last."""
    seen: frozenset[str] = frozenset()
    """Event ids folded in."""

    def shares(self) -> tuple[Share, ...]:
        """The arms that serve, with their probabilities; empty before the first promotion."""
        if self.current is None:
            return ()
        if self.candidate is None or self.split <= 0:
            return (Share(CURRENT, 1.0, self.current),)
        tried = Share(CANDIDATE, self.split, self.candidate)
        if self.split >= 1:
            return (tried,)
        return (Share(CURRENT, 1.0 - self.split, self.current), tried)

    def wanted(self) -> tuple[Snapshot, ...]:
        """Snapshots that a node must hold loaded, the current one first."""
        return tuple(s for s in (self.current, self.candidate) if s is not None)

    def lag(self, snapshot_id: str) -> int | None:
        """Snapshots published since `snapshot_id` was; None if it never was published."""
        if snapshot_id not in self.published:
            return None
        return len(self.published) - 1 - self.published.index(snapshot_id)

    def advance(self, event: PolicySnapshot) -> ArmState:
        """The state after one more event; this very state if the event changes nothing."""
        if event.event_id in self.seen:
            return self
        known = self.snapshots.get(event.snapshot_id)
        step = _STEPS.get(event.action)
        retired = self.standing.get(event.snapshot_id) == "retired"
        if step is None or retired or (known is not None and known.digest != event.digest):
            return replace(self, seen=self.seen | {event.event_id})
        told = known or _told_of(event)
        met = replace(
            self,
            seen=self.seen | {event.event_id},
            snapshots={**self.snapshots, told.snapshot_id: told},
            standing={told.snapshot_id: "published", **self.standing},
        )
        return step(met, told, event)


def fold_arms(events: Iterable[PolicySnapshot], start: ArmState | None = None) -> ArmState:
    """The state after `events` of ONE policy, in partition order, beginning from `start`."""
    return reduce(ArmState.advance, events, start or ArmState())


def _told_of(event: PolicySnapshot) -> Snapshot:
    return Snapshot(
        snapshot_id=event.snapshot_id,
        policy=event.policy,
        digest=event.digest,
        uri=event.uri,
        parent=event.parent,
        manifest=event.manifest,
        signature=event.signature,
    )


def _mark(state: ArmState, snapshot_id: str, standing: Standing) -> dict[str, Standing]:
    return {**state.standing, snapshot_id: standing}


def _publish(state: ArmState, told: Snapshot, event: PolicySnapshot) -> ArmState:
    if told.snapshot_id in state.published:
        return state
    return replace(state, published=(*state.published, told.snapshot_id))


def _canary(state: ArmState, told: Snapshot, event: PolicySnapshot) -> ArmState:
    if told == state.current:
        return state
    freed = _without_candidate(state, "published")
    return replace(
        freed,
        history=tuple(h for h in freed.history if h != told.snapshot_id),
        candidate=told,
        split=_share(event.split),
        canary_event_id=event.event_id,
        standing=_mark(freed, told.snapshot_id, "candidate"),
    )


def _promote(state: ArmState, told: Snapshot, event: PolicySnapshot) -> ArmState:
    if told == state.current:
        return state
    freed = _without_candidate(state, "published") if told == state.candidate else state
    history = tuple(h for h in freed.history if h != told.snapshot_id)
    standing = _mark(freed, told.snapshot_id, "current")
    if freed.current is not None:
        history = (*history, freed.current.snapshot_id)
        standing[freed.current.snapshot_id] = "former"
    return replace(freed, current=told, history=history, standing=standing)


def _roll_back(state: ArmState, told: Snapshot, event: PolicySnapshot) -> ArmState:
    return _withdraw(state, told, "rolled_back")


def _retire(state: ArmState, told: Snapshot, event: PolicySnapshot) -> ArmState:
    return _withdraw(state, told, "retired")


def _withdraw(state: ArmState, told: Snapshot, standing: Standing) -> ArmState:
    if told == state.candidate:
        return _without_candidate(state, standing)
    history = tuple(h for h in state.history if h != told.snapshot_id)
    left = replace(state, history=history, standing=_mark(state, told.snapshot_id, standing))
    if told != state.current:
        return left
    if not history:
        return replace(left, current=None)
    back = left.snapshots[history[-1]]
    return replace(
        left,
        current=back,
        history=history[:-1],
        standing=_mark(left, back.snapshot_id, "current"),
    )


def _without_candidate(state: ArmState, standing: Standing) -> ArmState:
    if state.candidate is None:
        return state
    marked = _mark(state, state.candidate.snapshot_id, standing)
    return replace(state, candidate=None, split=0.0, canary_event_id=None, standing=marked)


def _share(split: float | None) -> float:
    """A probability from whatever the event says; an event without one tries half."""
    if split is None or split != split:  # noqa: PLR0124  # NaN is the one value unlike itself
        return 0.5
    return min(1.0, max(0.0, split))


_STEPS = {
    "published": _publish,
    "canary": _canary,
    "promoted": _promote,
    "rolled_back": _roll_back,
    "retired": _retire,
}
