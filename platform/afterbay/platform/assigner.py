"""Which arm and which node answer a session: the scheduler's rules, without its sockets.

In:   heartbeats of nodes, `policy.snapshot.v2` events, requests
Out:  `InferenceAssigned`: the arm, its probability, a live node that holds its snapshot
Refuses: to answer before the policy's events were read to their end (`starting`)
Never: gives an arm that no live node can serve; the probability it names is the one it drew with

* A session's arm follows from a hash of the session salted with the event that began the canary:
  it sticks while that canary lasts, and two canaries divide the sessions independently.
* A candidate that no node holds yet serves nobody, and then `current` has probability 1.
* If no node holds the current snapshot (yet, or because it does not verify), the newest former
  one that some node holds stands in as `current`; its own id and digest are what is logged.
* Among the nodes that hold the digest the least busy one answers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from afterbay.platform.bus import Heartbeat, InferenceAssigned, InferenceRequest
from afterbay.schemas.events import PolicySnapshot
from afterbay.streams.arms import CANDIDATE, CURRENT, ArmState, Share, Snapshot, fold_arms

SILENT_S = 1.0
"""A node that was not heard of for so long is dead: four heartbeats."""


@dataclass(slots=True)
class _Node:
    """A live node, as its last heartbeat told."""

    node_id: str
    address: str
    digests: frozenset[str]
    heard_s: float
    """Monotonic time of the last heartbeat."""
    load: int
    """Requests it had at the last heartbeat, and those given to it since."""


class Assigner:
    """The state of the scheduler."""

    def __init__(self) -> None:
        self.ready = False
        """Set once the events of all policies were read to their end."""
        self._arms: dict[str, ArmState] = {}
        self._nodes: dict[str, _Node] = {}

    @property
    def nodes(self) -> tuple[str, ...]:
        """Ids of the nodes that live, as far as is known."""
        return tuple(self._nodes)

    def arms(self, policy: str) -> ArmState:
        """Where `policy` stands."""
        return self._arms.get(policy, ArmState())

    def advance(self, event: PolicySnapshot) -> None:
        """Take in the next event of the log."""
        self._arms[event.policy] = fold_arms([event], self.arms(event.policy))

    def heard(self, beat: Heartbeat, now_s: float) -> None:
        """Take in a heartbeat."""
        if beat.leaving:
            self._nodes.pop(beat.node_id, None)
            return
        self._nodes[beat.node_id] = _Node(
            beat.node_id,
            beat.address,
            frozenset(held.digest for held in beat.holds),
            now_s,
            beat.busy,
        )

    def bury(self, now_s: float) -> list[str]:
        """Forget the nodes that fell silent; their ids."""
        dead = [n.node_id for n in self._nodes.values() if now_s - n.heard_s > SILENT_S]
        for node_id in dead:
            del self._nodes[node_id]
        return dead

    def assign(self, ask: InferenceRequest) -> InferenceAssigned:
        """Arm and node for one request."""
        if not self.ready:
            return _nobody(ask, "starting")
        arms = self.arms(ask.policy)
        if arms.current is None and arms.candidate is None:
            return _nobody(ask, "no_snapshot")
        nodes = [n for n in self._nodes.values() if n.node_id not in ask.exclude]
        shares = servable(arms, {digest for node in nodes for digest in node.digests})
        if not shares:
            return _nobody(ask, "no_node")
        share = draw(shares, ask.session_id, arms.canary_event_id or "")
        node = min(
            (n for n in nodes if share.snapshot.digest in n.digests),
            key=lambda n: (n.load, n.node_id),
        )
        node.load += 1
        return InferenceAssigned(
            request_id=ask.request_id,
            attempt=ask.attempt,
            arm=share.arm,
            probability=share.probability,
            snapshot_id=share.snapshot.snapshot_id,
            digest=share.snapshot.digest,
            node_id=node.node_id,
            address=node.address,
        )


def servable(arms: ArmState, held: set[str]) -> tuple[Share, ...]:
    """The shares of `arms` that nodes holding the digests `held` can serve; they sum to 1.

    Without a current or former snapshot to serve there are none: a candidate is not given
    everybody because what it is compared with is away.
    """
    current = next((s for s in _currents(arms) if s.digest in held), None)
    candidate = arms.candidate
    if candidate is None or candidate.digest not in held or arms.split <= 0:
        return () if current is None else (Share(CURRENT, 1.0, current),)
    if current is None:
        return ()
    if arms.split >= 1:
        return (Share(CANDIDATE, 1.0, candidate),)
    return (
        Share(CURRENT, 1.0 - arms.split, current),
        Share(CANDIDATE, arms.split, candidate),
    )


def _currents(arms: ArmState) -> Iterator[Snapshot]:
    """The current snapshot, then the former ones a rollback would return to, newest first."""
    if arms.current is not None:
        yield arms.current
    for snapshot_id in reversed(arms.history):
        yield arms.snapshots[snapshot_id]


def draw(shares: Iterable[Share], session_id: str, salt: str) -> Share:
    """The share of a session: the same one for the same shares, session and salt."""
    digest = hashlib.blake2b(session_id.encode(), key=salt.encode()[:64], digest_size=8).digest()
    point = int.from_bytes(digest) / 2**64
    for share in (ordered := list(shares)):
        point -= share.probability
        if point < 0:
            return share
    return ordered[-1]  # rounding: the shares sum to a hair less than 1


def _nobody(ask: InferenceRequest, why: str) -> InferenceAssigned:
    return InferenceAssigned(request_id=ask.request_id, attempt=ask.attempt, error=why)
