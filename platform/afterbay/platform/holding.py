"""What a node holds loaded: follows the policy's events, verifies, loads, and acknowledges.

In:   `policy.snapshot.v2` from its beginning; snapshot folders
Out:  the loaded snapshots, by digest; a `policy.loaded.v2` event for each load, done or failed
Refuses: a folder whose signature, digest or id is not what the event says; it keeps what it has
Never: loads in the thread that answers; lets go of the last snapshot it can serve
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol

from afterbay.platform.answering import Loaded
from afterbay.platform.bus import Holding
from afterbay.platform.policy_log import PolicyLog
from afterbay.schemas import ids
from afterbay.schemas.clock import Clock
from afterbay.schemas.errors import AfterbayError, BadState, OutcomeUnknown, Retryable
from afterbay.schemas.events import Cursor, Event, PolicyLoaded, PolicySnapshot
from afterbay.schemas.signer import Verifier
from afterbay.streams.arms import ArmState, Snapshot, fold_arms
from afterbay.streams.snapshots import BadSnapshot, folder_of, verify_snapshot
from afterbay.trainers.policy import LocalPolicy, PromptSpec, load_policy

log = logging.getLogger("afterbay.node")

_PAUSE_S = 0.5
"""Pause after the log or the outbox was away."""


class LoadFailed(BadState):
    """A snapshot that cannot be served; `kind` goes into the event."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class EventOutbox(Protocol):
    """What telling needs of an outbox; `outbox.Outbox`."""

    source: str

    def open(self) -> Cursor | None:
        """Take over the source and read its committed cursor."""
        ...

    def commit(self, events: Sequence[Event], cursor: Cursor) -> None:
        """Produce events and cursor, all or none."""
        ...

    def close(self) -> None:
        """Let go."""
        ...


class SnapshotLoader:
    """From a snapshot's event to a policy in memory, trusting nothing on the way."""

    def __init__(self, home: Path, verifier: Verifier) -> None:
        self._home = home
        self._verifier = verifier

    def load(self, snapshot: Snapshot) -> Loaded:
        """The policy of `snapshot`, warmed up; LoadFailed if anything is not as signed."""
        try:
            folder = folder_of(snapshot.uri, self._home)
            manifest = verify_snapshot(
                folder, self._verifier, snapshot.digest, snapshot.snapshot_id
            )
            policy = load_policy(folder)
            _warm_up(policy)
        except BadSnapshot as error:
            raise LoadFailed(error.kind, str(error)) from None
        except Exception as error:  # whatever a snapshot does, the node keeps what it has
            what = str(error) if isinstance(error, AfterbayError) else type(error).__name__
            raise LoadFailed("load", f"snapshot {snapshot.snapshot_id}: {what}") from None
        return Loaded(manifest.policy, manifest.snapshot_id, manifest.digest, policy)


def _warm_up(policy: LocalPolicy) -> None:
    """The first answer of a fresh policy is slow; nobody should wait for it."""
    generation = policy.start([PromptSpec(ids=tuple(policy.encode("warm up").ids))])
    while not generation.done:
        generation.step()


class Telling:
    """Tells what was loaded, once each, however often the outbox has to be asked."""

    def __init__(self, outbox: EventOutbox) -> None:
        self._outbox = outbox
        self._opened = False
        self._due: list[PolicyLoaded] = []

    def add(self, event: PolicyLoaded) -> None:
        """Tell `event` with the next `flush`."""
        self._due.append(event)

    def flush(self) -> None:
        """Commit what is due, one event a transaction; Retryable leaves the rest due."""
        while self._due:
            event = self._due[0]
            cursor = Cursor(source=self._outbox.source, run_id=event.event_id)
            try:
                if self._opened or not self._told(event):
                    self._outbox.commit([event], cursor)
            except OutcomeUnknown:
                self._opened = False
                continue
            del self._due[0]

    def close(self) -> None:
        """Let go of the outbox."""
        self._outbox.close()

    def _told(self, event: PolicyLoaded) -> bool:
        """Open the outbox; whether its cursor says that `event` is out."""
        cursor = self._outbox.open()
        self._opened = True
        return cursor is not None and cursor.run_id == event.event_id


class Holder:
    """The loading thread, and what it has loaded. Readers may be in any thread."""

    def __init__(
        self,
        *,
        node_id: str,
        policy: str,
        follow: Callable[[], PolicyLog],
        loader: SnapshotLoader,
        telling: Telling,
        clock: Clock,
    ) -> None:
        self._node_id = node_id
        self._policy = policy
        self._follow = follow
        self._loader = loader
        self._telling = telling
        self._clock = clock
        self._arms = ArmState()
        self._held: dict[str, Loaded] = {}
        self._failed: set[str] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="holder", daemon=True)
        self.broken: AfterbayError | None = None
        """What ended the thread, if something did."""

    def start(self) -> None:
        """Begin to follow."""
        self._thread.start()

    def loaded(self, digest: str) -> Loaded | None:
        """The loaded snapshot with `digest`."""
        return self._held.get(digest)

    def holdings(self) -> tuple[Holding, ...]:
        """What is loaded, as heartbeats tell it."""
        return tuple(
            Holding(policy=h.policy_name, snapshot_id=h.snapshot_id, digest=h.digest)
            for h in self._held.values()
        )

    def close(self) -> None:
        """Stop following; what is loaded stays."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._telling.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._pump(self._follow())
            except Retryable as error:
                log.warning("%s: %s", self._node_id, error)
                self._stop.wait(_PAUSE_S)
            except AfterbayError as error:
                self.broken = error
                return

    def _pump(self, source: PolicyLog) -> None:
        self._arms = ArmState()  # a new follower begins at the beginning
        try:
            while not self._stop.is_set():
                told = [f.event for f in source.poll(0.1)]
                self._fold(event for event in told if isinstance(event, PolicySnapshot))
                if source.caught_up:
                    self._hold()
                self._telling.flush()
        finally:
            source.close()

    def _fold(self, events: Iterable[PolicySnapshot]) -> None:
        self._arms = fold_arms((e for e in events if e.policy == self._policy), self._arms)

    def _hold(self) -> None:
        """Load what is wanted and missing, then let go of what nobody wants."""
        wanted = {snapshot.digest: snapshot for snapshot in self._wanted()}
        for digest, snapshot in wanted.items():
            if digest not in self._held and snapshot.snapshot_id not in self._failed:
                self._load(snapshot)
        current = self._arms.current
        served = current is None or current.digest in self._held
        if served and self._held.keys() - wanted.keys():
            # a new mapping: the answering thread may be reading the old one
            self._held = {d: h for d, h in self._held.items() if d in wanted}

    def _wanted(self) -> list[Snapshot]:
        """Current, candidate, the newest published one, which may become either, and the one that a
        rollback of the current returns to."""
        newest = [self._arms.snapshots[name] for name in self._arms.published[-1:]]
        fresh = [s for s in newest if self._arms.standing.get(s.snapshot_id) == "published"]
        former = [self._arms.snapshots[name] for name in self._arms.history[-1:]]
        return [*self._arms.wanted(), *fresh, *former]

    def _load(self, snapshot: Snapshot) -> None:
        start = time.perf_counter()
        digest, error = "", None
        try:
            loaded = self._loader.load(snapshot)
        except LoadFailed as failure:
            log.warning("%s: %s", self._node_id, failure)
            self._failed.add(snapshot.snapshot_id)
            error = failure.kind
        else:
            self._held = {**self._held, loaded.digest: loaded}
            digest = loaded.digest
        event = PolicyLoaded(
            event_id=ids.new_id(self._clock.now()),
            node_id=self._node_id,
            policy=self._policy,
            snapshot_id=snapshot.snapshot_id,
            digest=digest,
            load_ms=(time.perf_counter() - start) * 1000,
            error=error,
        )
        self._telling.add(event)
