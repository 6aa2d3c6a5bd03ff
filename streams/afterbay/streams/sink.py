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

import gc
import logging
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as KafkaMessage

from afterbay.lakehouse import tables
from afterbay.lakehouse.archive import Message
from afterbay.lakehouse.lake import Lake
from afterbay.lakehouse.ledger import TableLedger
from afterbay.lakehouse.positions import SourcePartition
from afterbay.schemas.clock import Clock, SystemClock
from afterbay.schemas.errors import AfterbayError, OffsetGap, OutcomeUnknown, Retryable
from afterbay.schemas.topics import ARCHIVE_TABLE, DEADLETTER_TABLE, TABLES
from afterbay.streams.admin import TopicIds, partitions_of
from afterbay.streams.agent import log_to_stderr, run
from afterbay.streams.flush import PIPELINE, Held, Share, Writer, begin, tables_written
from afterbay.streams.kafka import ClientConfig, KafkaAddress, as_ours, consumer_config, raised
from afterbay.streams.keys.sealer import Sealer
from afterbay.streams.keys.store import KeyStore
from afterbay.streams.keys.vault import VaultPublic
from afterbay.streams.metrics import Metrics
from afterbay.streams.pii import Redactor
from afterbay.streams.settings import StreamSettings

log = logging.getLogger("afterbay.sink")

_BATCH = 1_000
_WAIT_S = 0.05
_REVOKE_S = 5.0
"""How long a flush in flight may hold up a rebalance."""


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
        self._topic_ids = TopicIds(address)
        self._held: dict[tuple[str, int], Held] = {}
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="sink-writer")
        self._flight: Future[frozenset[SourcePartition]] | None = None
        self._sent: list[Share] = []
        """Shares of the flush in flight, or of one that failed and is written again."""
        self._flushed_at = clock.monotonic()
        self._consumer: Consumer | None = None
        self._broken: AfterbayError | None = None
        self._paused = False

    def open(self) -> None:
        """Join the group; partitions come with the first polls."""
        self.close()
        tables.ensure(self._lake)
        self._writer.renew()
        self._consumer = Consumer(member_config(self._address, self._settings.session_s))
        names = [self._address.topic(name) for name in TABLES]
        self._consumer.subscribe(
            names, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )

    def step(self) -> bool:
        """Take in what came, and begin a flush when one is due."""
        took = self._poll()
        if self._flight is not None and self._flight.done():
            self._land()
        self._throttle()
        if self._flight is None and (self._sent or self._due()):
            self._begin(stopping=False)
        return took

    def drain(self) -> None:
        """Write what was read, and record where every partition's end is."""
        self._poll()
        self._land()
        if self._sent:
            self._begin(stopping=False)
            self._land()
        self._begin(stopping=True)
        self._land()

    def close(self) -> None:
        """Leave the group; what was not written is read again by the next owner."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None
        self._held.clear()
        self._sent, self._flight, self._broken = [], None, None

    def _poll(self) -> bool:
        if self._consumer is None:
            return False
        found = self._consumer.consume(_BATCH, _WAIT_S)
        # every message is taken before any error is raised: one left out would look like a gap
        errors = [error for message in found if (error := self._take(message)) is not None]
        self._raise_broken()
        if errors:
            raise as_ours(errors[0], "sink: reading")
        return bool(found)

    def _take(self, message: KafkaMessage) -> KafkaError | None:
        """Keep a message or a partition's end; another error is given back."""
        error = message.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            return error
        held = self._held.get((message.topic() or "", message.partition() or 0))
        if held is None:
            return None
        offset = message.offset() or 0
        if error is None:
            held.add(arrived(message))
        elif offset > max(held.read, held.end):
            held.end, held.end_since = offset, self._clock.monotonic()
        return None

    def _due(self) -> bool:
        elapsed = self._clock.monotonic() - self._flushed_at
        size = sum(held.bytes for held in self._held.values())
        return elapsed >= self._settings.flush_s or size >= self._settings.flush_bytes

    def _begin(self, *, stopping: bool) -> None:
        """Start a flush: of what failed before, else of what waits."""
        self._flushed_at = now = self._clock.monotonic()
        if not self._sent:
            gap_s = 0.0 if stopping else self._settings.gap_s
            shares = (held.share(now, gap_s, stopping=stopping) for held in self._held.values())
            self._sent = [share for share in shares if share is not None]
        if self._sent:
            self._flight = self._pool.submit(self._write, tuple(self._sent))

    def _write(self, shares: tuple[Share, ...]) -> frozenset[SourcePartition]:
        """One flush, in the writer's thread."""
        # asked after all of it was read, and ids never come again: still the same, so it was then
        now = self._topic_ids({share.held.source.topic for share in shares})
        sources = (share.held.source for share in shares)
        again = sorted({s.topic for s in sources if now.get(s.topic, s.topic_id) != s.topic_id})
        if again:
            raise OutcomeUnknown(
                f"sink: {', '.join(again)} was deleted and made again; what the old one held and "
                "no table has is gone with it, the new one is read from its start"
            )
        return self._writer.write(shares)

    def _land(self, within_s: float | None = None) -> None:
        """Wait for the flush in flight. After Retryable its shares stay, to be written again."""
        flight, self._flight = self._flight, None
        if flight is None:
            return
        fenced = flight.result(within_s)
        self._sent = []
        if fenced:
            raise OutcomeUnknown(
                f"sink: another owner moved {len(fenced)} partitions; the tables tell where each "
                "of them stands now, so they are assigned anew"
            )

    def _raise_broken(self) -> None:
        """What a callback of the consumer could not raise itself."""
        broken, self._broken = self._broken, None
        if isinstance(broken, Retryable):
            # partitions without a start would never be read: join again
            raise OutcomeUnknown(f"sink: taking partitions over: {broken}") from broken
        if broken is not None:
            raise broken

    def _throttle(self) -> None:
        """Stop fetching while more waits than two flushes may hold; polling goes on."""
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
        self._paused = False
        try:
            starts = self._starts(consumer, places)
            consumer.assign(starts)
            # a partition that was paused when it was revoked stays paused in the client
            consumer.resume(starts)
            log.info("took over %d partitions", len(places))
        except AfterbayError as error:  # raised by the next step, in the agent's own hands
            self._broken = error
            consumer.assign([])  # else the client would assign them itself, without our offsets
        except KafkaException as error:
            self._broken = raised(error, "sink: taking partitions over")
            consumer.assign([])

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
        # not the writer's own ledgers: its thread may be using them
        wanted = list(sources)
        fresh = {name: TableLedger(self._lake, name, PIPELINE) for name in tables_written()}
        return {name: ledger.next_offsets(wanted) for name, ledger in fresh.items()}

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
        if stored[ARCHIVE_TABLE] is None and low > 0:
            begin(self._lake, source, stored, low, self._clock.now())
            stored = dict.fromkeys(names, low)
        next_of = {name: offset or 0 for name, offset in stored.items()}
        start = min(next_of.values())
        if not low <= start <= high:
            raise OffsetGap(
                f"sink: {source.topic}/{source.partition} goes on at {start}, the log holds "
                f"[{low}, {high}); what is missing was deleted before it was read: restore the "
                "topic, or the tables as of the same time, and start again"
            )
        now = self._clock.monotonic()
        held = Held(source, next_of, read=start, moved_at=now)
        self._held[place.topic, place.partition] = held
        return TopicPartition(place.topic, place.partition, start)

    def _revoked(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        """Give a flush in flight a little time; correctness does not depend on it."""
        try:
            self._land(_REVOKE_S)
        except TimeoutError:
            log.warning("a flush was still in flight when partitions were revoked; left alone")
        except AfterbayError as error:
            log.warning("the last flush before partitions were revoked: %s", error)
        self._lost(consumer, places)

    def _lost(self, _consumer: Consumer, places: list[TopicPartition]) -> None:
        lost = [self._held.pop((place.topic, place.partition), None) for place in places]
        self._sent = [share for share in self._sent if share.held not in lost]


def member_config(address: KafkaAddress, session_s: float) -> ClientConfig:
    """A consumer that loses its partitions after `session_s` of silence."""
    session_ms = int(session_s * 1_000)
    return consumer_config(address, PIPELINE) | {
        "session.timeout.ms": session_ms,
        # several a session, so that one late heartbeat moves nothing
        "heartbeat.interval.ms": min(3_000, session_ms // 4),
    }


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


def main(environ: Mapping[str, str]) -> int:
    """Entry point of the agent; its exit code."""
    log_to_stderr()
    # a flush is a hundred thousand objects that live as long as it: looked through again and again
    # they took a fifth of the sink's time
    gc.set_threshold(100_000, 50, 100)
    # mimalloc keeps what a flush has freed beside what polars' and delta-rs' own allocators keep
    pa.set_memory_pool(pa.system_memory_pool())
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
