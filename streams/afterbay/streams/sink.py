"""The sink: every event of every topic into its table and the archive, exactly once.

In:   committed messages of all topics that have a table
Out:  one commit a flush to the archive, to each table that has rows, and to the dead letters; every
      commit says in its txns which offset each partition goes on at
Refuses: to start where the log no longer holds what was not read (OffsetGap); partitions that
      another owner has moved are given up
Never: trusts the group's stored offsets, stops polling for a commit, or stops a partition for a
      bad message

A partition whose end stays past its last row for `gap_s` (control records, aborts) gets a gap row
in the archive, and every table's position moves to that end.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka import Message as KafkaMessage

from afterbay.lakehouse import archive, tables
from afterbay.lakehouse.archive import Message
from afterbay.lakehouse.lake import Lake
from afterbay.lakehouse.ledger import PartitionsFenced, TableLedger
from afterbay.lakehouse.positions import SourcePartition
from afterbay.schemas.clock import Clock, SystemClock
from afterbay.schemas.errors import AfterbayError, OffsetGap
from afterbay.schemas.topics import ARCHIVE_TABLE, DEADLETTER_TABLE, TABLES
from afterbay.streams.admin import partitions_of
from afterbay.streams.agent import log_to_stderr, run
from afterbay.streams.intake import Intake, Seals, past, take_in
from afterbay.streams.kafka import KafkaAddress, as_ours, consumer_config
from afterbay.streams.keys.sealer import Sealer
from afterbay.streams.keys.store import KeyStore
from afterbay.streams.keys.vault import VaultPublic
from afterbay.streams.metrics import Metrics
from afterbay.streams.pii import Redactor
from afterbay.streams.settings import StreamSettings

log = logging.getLogger("afterbay.sink")

PIPELINE = "sink"
LAZY_S = 30.0
"""How long a table without rows may lag behind before its position is moved by an empty commit."""
_BATCH = 1_000
_WAIT_S = 0.05


@dataclass(slots=True)
class Held:
    """One partition that this sink owns. Made on assignment, used by one flush at a time."""

    source: SourcePartition
    next: dict[str, int]
    """Next offset of each table that takes rows from it."""
    waiting: list[Message] = field(default_factory=list)
    """Messages read and not yet handed to a flush."""
    bytes: int = 0
    """Size of `waiting`."""
    read: int = 0
    """Offset after the last message read."""
    end: int = 0
    """Offset after the last decided record, as the broker told at the partition's end."""
    end_since: float = 0.0
    """Monotonic time since which `end` lies past `read`."""
    moved_at: float = 0.0
    """Monotonic time at which every table stood at the same offset."""

    @property
    def table(self) -> str:
        """Table of the partition's topic."""
        return TABLES[self.source.topic]


@dataclass(frozen=True, slots=True)
class Share:
    """One partition's part of a flush. Made by the polling thread, written by the other."""

    held: Held
    messages: tuple[Message, ...]
    end: int
    """Offset to go on at once these are written."""
    gap: bool
    """True if [after the last message, `end`) is recorded as a gap."""
    all_tables: bool
    """True if tables without rows move too."""


class Writer:
    """Writes flushes: archive, then tables, then dead letters. One thread."""

    def __init__(
        self, lake: Lake, redactor: Redactor, sealer: Seals, clock: Clock, metrics: Metrics
    ) -> None:
        self._redactor = redactor
        self._sealer = sealer
        self._clock = clock
        self._rows = metrics.counter("rows", "Rows written.", ("table",))
        self._dead = metrics.counter("dead", "Messages dead-lettered.", ("topic",))
        self._seconds = metrics.seconds("commit", "Time of one commit.", ("table",))
        self.ledgers = {name: TableLedger(lake, name, PIPELINE) for name in tables_written()}

    def write(self, shares: list[Share]) -> None:
        """Commit one flush; drops from it the partitions that another owner has moved."""
        taken = [
            (s, take_in(s.held.source, s.messages, self._redactor, self._sealer)) for s in shares
        ]
        self._sealer.commit()
        for name in dict.fromkeys((ARCHIVE_TABLE, *TABLES.values(), DEADLETTER_TABLE)):
            concerned = [(s, i) for s, i in taken if name in s.held.next]
            self._write_table(name, concerned)

    def _write_table(self, name: str, taken: list[tuple[Share, Intake]]) -> None:
        parts = {s.held.source: self._part(name, s, i) for s, i in taken}
        moving = [s for s, _ in taken if s.all_tables or _counts(parts[s.held.source])]
        while moving:
            rows = pa.concat_tables([parts[s.held.source] for s in moving])
            expected = {s.held.source: s.held.next[name] for s in moving}
            new = {s.held.source: max(s.end, s.held.next[name]) for s in moving}
            try:
                with self._seconds.labels(name).time():
                    self.ledgers[name].append(rows, expected, new)
            except PartitionsFenced as error:
                log.warning("%s", error)
                moving = [s for s in moving if s.held.source not in error.partitions]
                if not moving:
                    raise
                continue
            for share in moving:
                share.held.next[name] = new[share.held.source]
            self._rows.labels(name).inc(rows.num_rows)
            return

    def _part(self, name: str, share: Share, intake: Intake) -> pa.Table:
        """Rows of one partition that table `name` has still to take in."""
        held = share.held
        if name == ARCHIVE_TABLE:
            return self._archive_part(share, intake)
        rows = intake.dead if name == DEADLETTER_TABLE else intake.rows
        if name == DEADLETTER_TABLE and held.table == DEADLETTER_TABLE:
            rows = pa.concat_tables([intake.rows, intake.dead])
        return past(rows, held.next[name])

    def _archive_part(self, share: Share, intake: Intake) -> pa.Table:
        source, start = share.held.source, share.held.next[ARCHIVE_TABLE]
        new = [message for message in intake.archived if message.offset >= start]
        parts = [archive.rows(source, start, new)]
        after = new[-1].offset + 1 if new else start
        if share.gap and share.end > after:
            parts.append(archive.gap_row(source, after, share.end, self._clock.now()))
        self._dead.labels(source.topic).inc(sum(m.dead for m in new))
        return pa.concat_tables(parts)


class Sink:
    """The agent: polls in its own thread, writes in another."""

    name = PIPELINE

    def __init__(
        self,
        *,
        lake: Lake,
        address: KafkaAddress,
        writer: Writer,
        clock: Clock,
        settings: StreamSettings,
    ) -> None:
        self._lake = lake
        self._address = address
        self._writer = writer
        self._clock = clock
        self._settings = settings
        self._held: dict[tuple[str, int], Held] = {}
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="sink-writer")
        self._flight: Future[None] | None = None
        self._flushed_at = clock.monotonic()
        self._consumer: Consumer | None = None
        self._broken: AfterbayError | None = None
        self._paused = False

    def open(self) -> None:
        """Join the group; partitions come with the first polls."""
        self.close()
        tables.ensure(self._lake)
        self._consumer = Consumer(
            {**consumer_config(self._address, PIPELINE), "session.timeout.ms": 10_000}
        )
        names = [self._address.topic(name) for name in TABLES]
        self._consumer.subscribe(
            names, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )

    def step(self) -> bool:
        """Take in what came, and begin a flush when one is due."""
        took = self._poll()
        self._raise_failures()
        self._throttle()
        if self._flight is None and self._due():
            self._begin(stopping=False)
        return took

    def drain(self) -> None:
        """Write what was read, and record where every partition's end is."""
        self._poll()
        self._land()
        self._begin(stopping=True)
        self._land()

    def close(self) -> None:
        """Leave the group; what was not written is read again by the next owner."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None
        self._held.clear()

    def _poll(self) -> bool:
        if self._consumer is None:
            return False
        found = self._consumer.consume(_BATCH, _WAIT_S)
        for message in found:
            self._take(message)
        return bool(found)

    def _take(self, message: KafkaMessage) -> None:
        error = message.error()
        held = self._held.get((message.topic() or "", message.partition() or 0))
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            raise as_ours(error, "sink: reading")
        if held is None:
            return
        offset = message.offset() or 0
        if error is not None:
            if offset > max(held.read, held.end):
                held.end_since = self._clock.monotonic()
            held.end = max(held.end, offset)
            return
        taken = arrived(message)
        held.waiting.append(taken)
        held.bytes += len(taken.value or b"") + len(taken.key or b"")
        held.read = offset + 1

    def _due(self) -> bool:
        elapsed = self._clock.monotonic() - self._flushed_at
        size = sum(held.bytes for held in self._held.values())
        return elapsed >= self._settings.flush_s or size >= self._settings.flush_bytes

    def _begin(self, *, stopping: bool) -> None:
        self._flushed_at = self._clock.monotonic()
        shares = [self._share(held, stopping=stopping) for held in self._held.values()]
        moving = [share for share in shares if share is not None]
        if moving:
            self._flight = self._pool.submit(self._writer.write, moving)

    def _share(self, held: Held, *, stopping: bool) -> Share | None:
        now = self._clock.monotonic()
        quiet = held.end > held.read and now - held.end_since >= self._settings.gap_s
        gap = held.end > held.read and (quiet or stopping)
        lagging = len(set(held.next.values())) > 1 and now - held.moved_at >= LAZY_S
        if not held.waiting and not gap and not lagging and not stopping:
            return None
        messages, held.waiting, held.bytes = tuple(held.waiting), [], 0
        if gap:
            held.read = held.end
        if gap or lagging or stopping:
            held.moved_at = now
        return Share(held, messages, held.read, gap, gap or lagging or stopping)

    def _land(self) -> None:
        """Wait for the flush in flight."""
        flight, self._flight = self._flight, None
        if flight is not None:
            flight.result()

    def _raise_failures(self) -> None:
        if self._broken is not None:
            raise self._broken
        if self._flight is not None and self._flight.done():
            self._land()

    def _throttle(self) -> None:
        """Stop fetching while more waits than a flush may hold; polling goes on."""
        full = sum(held.bytes for held in self._held.values()) > 2 * self._settings.flush_bytes
        if self._consumer is None or full == self._paused:
            return
        places = self._consumer.assignment()
        if full:
            self._consumer.pause(places)
        else:
            self._consumer.resume(places)
        self._paused = full

    def _assigned(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        try:
            consumer.assign(self._starts(consumer, places))
        except AfterbayError as error:  # raised by the next step, in the agent's own hands
            self._broken = error

    def _starts(self, consumer: Consumer, places: list[TopicPartition]) -> list[TopicPartition]:
        topics = {self._address.logical(place.topic) for place in places}
        known = {(p.topic, p.partition): p for p in partitions_of(self._address, topics)}
        sources = {
            (place.topic, place.partition): known[
                self._address.logical(place.topic), place.partition
            ]
            for place in places
        }
        next_offsets = self._next_offsets(sources.values())
        return [
            self._hold(consumer, place, sources[place.topic, place.partition], next_offsets)
            for place in places
        ]

    def _next_offsets(
        self, sources: Iterable[SourcePartition]
    ) -> Mapping[str, dict[SourcePartition, int]]:
        wanted = list(sources)
        return {name: ledger.next_offsets(wanted) for name, ledger in self._writer.ledgers.items()}

    def _hold(
        self,
        consumer: Consumer,
        place: TopicPartition,
        source: SourcePartition,
        next_offsets: Mapping[str, dict[SourcePartition, int]],
    ) -> TopicPartition:
        names = dict.fromkeys((TABLES[source.topic], ARCHIVE_TABLE, DEADLETTER_TABLE))
        stored = {name: next_offsets[name].get(source) for name in names}
        low, high = consumer.get_watermark_offsets(place, timeout=10)
        known = [offset for offset in stored.values() if offset is not None]
        start = min(offset or 0 for offset in stored.values()) if known else low
        if not low <= start <= high:
            raise OffsetGap(
                f"sink: {source.topic}/{source.partition} goes on at {start}, the log holds "
                f"[{low}, {high}); if it was deleted there is a loss: `afterbay prove` names it, "
                "`afterbay rewind` moves the position after a restore"
            )
        now = self._clock.monotonic()
        held = Held(source, {n: o or 0 for n, o in stored.items()}, read=start, moved_at=now)
        self._held[place.topic, place.partition] = held
        return TopicPartition(place.topic, place.partition, start)

    def _revoked(self, _consumer: Consumer, places: list[TopicPartition]) -> None:
        try:
            self._land()
        except AfterbayError as error:
            self._broken = error
        self._lost(_consumer, places)

    def _lost(self, _consumer: Consumer, places: list[TopicPartition]) -> None:
        for place in places:
            self._held.pop((place.topic, place.partition), None)


def tables_written() -> tuple[str, ...]:
    """Every table that the sink writes."""
    return tuple(dict.fromkeys((ARCHIVE_TABLE, *TABLES.values())))


def arrived(message: KafkaMessage) -> Message:
    """A message as the archive keeps it; what it is becomes known when it is decoded."""
    _, timestamp = message.timestamp()
    key = message.key()
    return Message(
        offset=message.offset() or 0,
        timestamp_ms=timestamp,
        key=key.encode() if isinstance(key, str) else key,
        headers=tuple(_header(*pair) for pair in _pairs(message)),
        value=message.value(),
        event_id=None,
    )


def _pairs(message: KafkaMessage) -> list[tuple[str, str | bytes | None]]:
    found: list[tuple[str, str | bytes | None]] = list(message.headers() or ())  # type: ignore[arg-type]  # typed as a list of pairs or of names
    return found


def _header(name: str, value: str | bytes | None) -> tuple[str, bytes | None]:
    return name, value.encode() if isinstance(value, str) else value


def _counts(rows: pa.Table) -> bool:
    return bool(rows.num_rows > 0)


def main(environ: Mapping[str, str]) -> int:
    """Entry point of the agent; its exit code."""
    log_to_stderr()
    settings = StreamSettings.from_env(environ)
    clock, metrics = SystemClock(), Metrics(PIPELINE)
    store = KeyStore(settings.home / "keystore.sqlite")
    sealer = Sealer(VaultPublic.load(settings.home / "keys"), store, PIPELINE, clock)
    writer = Writer(settings.lake, Redactor(), sealer, clock, metrics)
    sink = Sink(
        lake=settings.lake,
        address=settings.address,
        writer=writer,
        clock=clock,
        settings=settings,
    )
    try:
        return run(sink, settings.agent(0.02), metrics)
    finally:
        store.close()
