"""Write one flush of the sink: archive, then tables, then dead letters, each under its positions.

In:   `Share`s: what was read of each partition since the last flush
Out:  one commit a table; each partition's positions moved
Refuses: partitions that another owner has moved (PartitionsFenced, once nothing else is left)
Never: moves a position in memory before its commit is in the table, so a flush may be written again
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import pyarrow as pa

from afterbay.lakehouse import archive
from afterbay.lakehouse.archive import Message
from afterbay.lakehouse.lake import Lake
from afterbay.lakehouse.ledger import PartitionsFenced, TableLedger
from afterbay.lakehouse.positions import SourcePartition
from afterbay.schemas.clock import Clock
from afterbay.schemas.topics import ARCHIVE_TABLE, DEADLETTER_TABLE, TABLES
from afterbay.streams.intake import Intake, past, take_in
from afterbay.streams.letters import Seals
from afterbay.streams.metrics import Metrics
from afterbay.streams.pii import Redactor

log = logging.getLogger("afterbay.sink")

PIPELINE = "sink"
"""Name in the txns of every table that the sink writes."""
LAZY_S = 30.0
"""How long a table without rows may lag behind before its position is moved by an empty commit."""


@dataclass(slots=True, eq=False)
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

    def add(self, message: Message) -> None:
        """Keep a message for the next flush."""
        self.waiting.append(message)
        self.bytes += len(message.value or b"") + len(message.key or b"")
        self.read = message.offset + 1

    def share(self, now: float, gap_s: float, *, stopping: bool) -> Share | None:
        """What the next flush writes of this partition; None if there is nothing to write."""
        ended = self.end > self.read
        gap = ended and now - self.end_since >= gap_s
        lagging = len(set(self.next.values())) > 1 and now - self.moved_at >= LAZY_S
        everywhere = gap or lagging or stopping
        if not self.waiting and not everywhere:
            return None
        messages, self.waiting, self.bytes = tuple(self.waiting), [], 0
        if gap:
            self.read = self.end
        if everywhere:
            self.moved_at = now
        return Share(self, messages, self.read, gap, everywhere)


@dataclass(frozen=True, slots=True, eq=False)
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
        self._redacted = metrics.counter(
            "redacted", "Events in which personal data was found again, masked here.", ("topic",)
        )
        self._seconds = metrics.seconds("commit", "Time of one commit.", ("table",))
        self._lake = lake
        self._ledgers: dict[str, TableLedger] = {}
        self.renew()

    def renew(self) -> None:
        """Look at every table anew before the next flush; after a commit of unknown outcome."""
        self._ledgers = {n: TableLedger(self._lake, n, PIPELINE) for n in tables_written()}

    def write(self, shares: Sequence[Share]) -> frozenset[SourcePartition]:
        """Commit one flush; the partitions that another owner has moved, which are left out.

        Raises Retryable if a table did not take its rows: the same shares may be written again, and
        tables that took them already are passed over.
        """
        fenced: set[SourcePartition] = set()
        taken = [
            (s, take_in(s.held.source, self._as_archived(s), self._redactor, self._sealer))
            for s in shares
        ]
        self._sealer.commit()
        for share, intake in taken:
            self._alert(share.held.source, intake.redacted)
        # the archive first: what a table holds, the archive holds already
        for name in dict.fromkeys((ARCHIVE_TABLE, *TABLES.values())):
            self._write_table(name, [part for part in taken if name in part[0].held.next], fenced)
        return frozenset(fenced)

    def _as_archived(self, share: Share) -> Sequence[Message]:
        """Messages of a share; where the archive is ahead of a table, as the archive holds them.

        Sealed a second time, an event that was redacted here would differ from the archived one.
        """
        ahead, messages = share.held.next[ARCHIVE_TABLE], share.messages
        if not messages or messages[0].offset >= ahead:
            return messages
        stored = archive.redacted(self._lake, share.held.source, messages[0].offset, ahead)
        return [replace(m, value=stored[m.offset]) if m.offset in stored else m for m in messages]

    def _alert(self, source: SourcePartition, redacted: int) -> None:
        """Say so: what the sink finds lies in clear in Kafka until its retention ends."""
        if redacted:
            self._redacted.labels(source.topic).inc(redacted)
            log.warning(
                "%s/%d: personal data in %d events, masked and sealed; Kafka holds it in clear "
                "until its retention ends, so look at who produces to this topic",
                source.topic,
                source.partition,
                redacted,
            )

    def _write_table(
        self, name: str, taken: Sequence[tuple[Share, Intake]], fenced: set[SourcePartition]
    ) -> None:
        parts = {s: self._part(name, s, i) for s, i in taken if s.held.source not in fenced}
        moving = {s: p for s, p in parts.items() if s.all_tables or p.num_rows > 0}
        while moving:
            try:
                self._append(name, moving)
            except PartitionsFenced as error:
                log.warning("%s", error)
                fenced.update(error.partitions)
                moving = {s: p for s, p in moving.items() if s.held.source not in fenced}
            else:
                return

    def _append(self, name: str, parts: Mapping[Share, pa.Table]) -> None:
        rows = pa.concat_tables(parts.values())
        expected = {s.held.source: s.held.next[name] for s in parts}
        new = {s.held.source: max(s.end, s.held.next[name]) for s in parts}
        with self._seconds.labels(name).time():
            self._ledgers[name].append(rows, expected, new)
        for share in parts:
            share.held.next[name] = new[share.held.source]
        self._rows.labels(name).inc(rows.num_rows)

    def _part(self, name: str, share: Share, intake: Intake) -> pa.Table:
        """Rows of one partition that table `name` has still to take in."""
        held = share.held
        if name == ARCHIVE_TABLE:
            return self._archive_part(share, intake)
        rows = intake.dead if name == DEADLETTER_TABLE else intake.rows
        if name == DEADLETTER_TABLE and TABLES[held.source.topic] == DEADLETTER_TABLE:
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


def tables_written() -> tuple[str, ...]:
    """Every table that the sink writes."""
    return tuple(dict.fromkeys((ARCHIVE_TABLE, *TABLES.values())))


def begin(
    lake: Lake, source: SourcePartition, stored: Mapping[str, int | None], low: int, at: datetime
) -> None:
    """Let every table of a partition that was never read go on at `low`, its oldest offset.

    The archive comes last: while it knows nothing of the partition, this is simply done again.
    """
    for name in (TABLES[source.topic], DEADLETTER_TABLE, ARCHIVE_TABLE):
        if stored.get(name) == low:
            continue
        rows = archive.gap_row(source, 0, low, at) if name == ARCHIVE_TABLE else None
        expected = {source: stored.get(name) or 0}
        TableLedger(lake, name, PIPELINE).append(rows, expected, {source: low})
