"""The flusher: takes records from the L1 ring, and lets only clean events leave the node.

In:   the gateway's ring (clear text, in memory), the vault's public key
Out:  redacted and sealed events and their cursor, in one transaction of the outbox; key records in
      the key store before them
Refuses: nothing; a record that cannot be cleaned leaves sealed, on `deadletter.v2`
Never: frees a record before its event is committed; writes clear text anywhere

Died between ... and ...          then on restart
key store and transaction         keys without events stay behind, the batch is cleaned again
transaction and `free`            the cursor in `cursor.v2` says so: freed, not sent again
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from afterbay.platform.cleaning import Cleaner
from afterbay.platform.ring import CAPACITY, L1, Ring
from afterbay.platform.settings import Settings
from afterbay.schemas.clock import SystemClock
from afterbay.schemas.codec import EncodeError, encode
from afterbay.schemas.errors import BadState
from afterbay.schemas.events import Cursor, DeadLetter, Event
from afterbay.schemas.faults import crash_points
from afterbay.streams.agent import AgentSettings, log_to_stderr, run
from afterbay.streams.kafka import KafkaAddress
from afterbay.streams.keys.sealer import Sealer
from afterbay.streams.keys.store import KeyStore
from afterbay.streams.keys.vault import VaultPublic
from afterbay.streams.metrics import Metrics
from afterbay.streams.outbox import Outbox
from afterbay.streams.pii import Redactor

log = logging.getLogger("afterbay.flusher")

SOURCE = "flusher"
"""Name in `cursor.v2` and of the transactional id."""


class RingReader(Protocol):
    """What the flusher needs of a ring; `ring.Ring` as reader."""

    ring_id: str
    torn: int

    @property
    def fill(self) -> float:
        """Share of the ring in use, 0 to 1."""
        ...

    def read(
        self, after_sequence: int, max_records: int, max_bytes: int
    ) -> Sequence[tuple[int, bytes]]:
        """(sequence, data) of the records after `after_sequence`, in order."""
        ...

    def free(self, through_sequence: int) -> None:
        """Zero the records up to and including `through_sequence`."""
        ...

    def close(self) -> None:
        """Detach."""
        ...


class EventOutbox(Protocol):
    """What the flusher needs of an outbox; `outbox.Outbox`."""

    def open(self) -> Cursor | None:
        """Take over the source and read its committed cursor."""
        ...

    def commit(self, events: Sequence[Event], cursor: Cursor) -> None:
        """Produce events and cursor, all or none."""
        ...

    def close(self) -> None:
        """Let go of the producer."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FlusherSettings:
    """How much one transaction takes. Made by the entry point."""

    batch_records: int = 256
    """Most records."""
    batch_bytes: int = 4 * 1024 * 1024
    """Bytes after which no further record is taken; keeps a transaction under 200 ms."""


class Flusher:
    """Agent that empties one ring. One is active: the ring has one reader, the outbox one owner."""

    name = SOURCE

    def __init__(
        self,
        *,
        attach: Callable[[], RingReader],
        outbox: EventOutbox,
        cleaner: Cleaner,
        sealer: Sealer,
        settings: FlusherSettings | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self._attach = attach
        self._ring: RingReader | None = None
        self._outbox = outbox
        self._cleaner = cleaner
        self._sealer = sealer
        self._settings = settings or FlusherSettings()
        self._after = 0
        metrics = metrics or Metrics(self.name)
        self._events = metrics.counter("events", "Events committed, by topic.", ("topic",))
        self._found = metrics.counter("findings", "Values sealed, by kind.", ("kind",))
        self._dead = metrics.counter("quarantined", "Records sealed whole, by reason.", ("reason",))
        self._fill = metrics.gauge("ring_fill", "Share of the ring in use.")
        self._torn = metrics.gauge("ring_torn", "Records lost because their check failed.")

    def open(self) -> None:
        """Take up the committed cursor, and free what it says is out."""
        if self._ring is None:
            self._ring = self._attach()
        cursor = self._outbox.open()
        mine = cursor is not None and cursor.ring_id == self._ring.ring_id
        self._after = (cursor.sequence or 0) if cursor is not None and mine else 0
        self._ring.free(self._after)

    def step(self) -> bool:
        """Move one batch from the ring to Kafka; True if there was one."""
        ring = self._opened()
        self._fill.set(ring.fill)
        self._torn.set(ring.torn)
        batch = ring.read(self._after, self._settings.batch_records, self._settings.batch_bytes)
        if not batch:
            self._sealer.expire()
            return False
        records = [data for _, data in batch]
        events = self._cleaner.clean(records)
        self._commit(records, events, batch[-1][0])
        return True

    def drain(self) -> None:
        """Empty the ring."""
        while self.step():
            pass

    def close(self) -> None:
        """Let go of producer and ring; records that are not out stay in it."""
        self._outbox.close()
        if self._ring is not None:
            self._ring.close()
            self._ring = None

    def _opened(self) -> RingReader:
        if self._ring is None:
            raise BadState("flusher: no ring attached; call open() before step()")
        return self._ring

    def _commit(self, records: Sequence[bytes], events: Sequence[Event], sequence: int) -> None:
        ring = self._opened()
        cursor = Cursor(source=SOURCE, ring_id=ring.ring_id, sequence=sequence)
        self._sealer.commit()
        crash_points.reach("flusher.keys_committed")
        try:
            self._outbox.commit(events, cursor)
        except EncodeError:  # raised before the transaction: nothing has happened yet
            events = [self._fitting(*pair) for pair in zip(records, events, strict=True)]
            self._sealer.commit()
            self._outbox.commit(events, cursor)
        crash_points.reach("flusher.committed")
        ring.free(sequence)
        self._after = sequence
        self._count(events)

    def _fitting(self, record: bytes, event: Event) -> Event:
        """`event`, or its record as a dead letter if no message can hold it."""
        try:
            encode(event)
        except EncodeError:
            return self._cleaner.quarantine(record, "encode")
        return event

    def _count(self, events: Sequence[Event]) -> None:
        for event in events:
            self._events.labels(event.TOPIC).inc()
            for finding in getattr(event, "pii", ()):
                self._found.labels(finding.kind).inc()
            if isinstance(event, DeadLetter):
                self._dead.labels(event.reason).inc()
                log.warning("quarantined a record for %s: %s", event.source_topic, event.reason)


def main(environ: Mapping[str, str]) -> int:
    """Run the flusher of a home until it is told to stop; the exit code."""
    log_to_stderr()
    settings = Settings.from_env(environ)
    home, clock, metrics = settings.home, SystemClock(), Metrics(SOURCE)
    store = KeyStore(home.keystore)
    sealer = Sealer(VaultPublic.load(home.keys), store, SOURCE, clock)
    flusher = Flusher(
        attach=lambda: Ring.open(home.ring(L1), CAPACITY, "reader"),
        outbox=Outbox(SOURCE, KafkaAddress(settings.bootstrap, settings.prefix), clock),
        cleaner=Cleaner(Redactor(), sealer, clock),
        sealer=sealer,
        metrics=metrics,
    )
    try:
        port = settings.metrics_port
        return run(flusher, AgentSettings(metrics_port=port, idle_s=0.02), metrics)
    finally:
        store.close()
