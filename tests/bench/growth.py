"""The sink's writer as its tables grow: cost of a row and time of a commit must stay flat.

The `Writer` of the agent, with redaction, sealing, archive, leaves and fsync, fed from memory, and
maintenance beside it as in an installation (checkpoints every 50 commits, compaction), whose
time is not counted. Two ways to grow: by rows (flushes of 5,000 up to 10^5, 10^6 and, with LARGE=1,
10^7), and by commits (flushes of 20 rows; COMMITS, 5000). Each figure is a median over the last
flushes before the size, beside that over the first ones after a warm-up.
"""

from __future__ import annotations

import itertools
import logging
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from rich.console import Console

from afterbay.lakehouse import tables
from afterbay.lakehouse.archive import Message
from afterbay.lakehouse.lake import Lake
from afterbay.lakehouse.maintenance import MaintenanceSettings, lease, maintain
from afterbay.lakehouse.positions import SourcePartition
from afterbay.schemas import ids
from afterbay.schemas.clock import SystemClock
from afterbay.schemas.codec import HEADER_BYTES
from afterbay.schemas.topics import ARCHIVE_TABLE
from afterbay.streams.flush import Held, Share, Writer
from afterbay.streams.keys import ensure_keys
from afterbay.streams.keys.sealer import Sealer
from afterbay.streams.keys.store import KeyStore
from afterbay.streams.keys.vault import VaultPublic
from afterbay.streams.metrics import Metrics
from afterbay.streams.pii import Redactor
from tests.bench import ingest_topic
from tests.bench.harness import Figure, Peer, Reach

FLAT = 1.2
ROWS, FEW_ROWS = 5_000, 20
WINDOW, WARM = 10, 5
"""Flushes in a median; flushes left out at the start."""
_EVERY = 20
"""Flushes between two rounds of maintenance."""
_say = Console().print


def measure(folder: Path) -> list[Figure]:
    """Both ways to grow."""
    sizes = [100_000, 1_000_000, *([10_000_000] if os.environ.get("LARGE") == "1" else [])]
    commits = int(os.environ.get("COMMITS") or 5_000)
    return [*_by_rows(folder / "rows", sizes), *_by_commits(folder / "commits", commits)]


def _by_rows(folder: Path, sizes: Sequence[int]) -> Iterator[Figure]:
    with _table(folder, ROWS) as table:
        taken: list[float] = []
        for size in sizes:
            taken += table.grow(size // ROWS - len(taken))
            now = median(taken[-WINDOW:]) / ROWS * 1e6
            first = median(taken[WARM : WARM + WINDOW]) / ROWS * 1e6
            yield _flat(f"cost of a row at {size:,} rows", "us", now, first)


def _by_commits(folder: Path, commits: int) -> Iterator[Figure]:
    with _table(folder, FEW_ROWS) as table:
        taken = table.grow(commits)
    window = min(200, commits // 4)
    first, now = median(taken[WARM : WARM + window]), median(taken[-window:])
    yield _flat(f"flush of {FEW_ROWS} rows after {commits:,} commits", "s", now, first, window)


def _flat(name: str, unit: str, now: float, first: float, n: int = WINDOW) -> Figure:
    return Figure(
        name=name,
        value=now,
        unit=unit,
        n=n,
        peer=Peer("the first flushes", first),
        reach=Reach("<=", FLAT),
    )


class _Table:
    """One partition's way into its tables, from memory."""

    def __init__(self, lake: Lake, writer: Writer, rows: int) -> None:
        self._lake = lake
        self._writer = writer
        self._rows = rows
        self._held = Held(
            SourcePartition(ingest_topic.TOPIC, "growth", 0),
            dict.fromkeys((ARCHIVE_TABLE, "inference", "deadletter"), 0),
        )
        self._templates = [m.value for m in ingest_topic.messages(max(rows, 2_000), seed=1)]
        self._number = itertools.count()
        self._said = 0.0

    def grow(self, flushes: int) -> list[float]:
        """Write so many flushes; seconds of each."""
        return [self._flush() for _ in range(flushes)]

    def _flush(self) -> float:
        start = self._held.read
        messages = tuple(self._message(start + n) for n in range(self._rows))
        self._held.read = start + self._rows
        share = Share(self._held, messages, self._held.read, gap=False, all_tables=False)
        begin = time.perf_counter()
        self._writer.write([share])
        seconds = time.perf_counter() - begin
        if next(self._number) % _EVERY == _EVERY - 1:
            self._maintain()
        if time.monotonic() - self._said > 10:
            self._said = time.monotonic()
            _say(f"{self._held.read:,} rows, this flush {seconds:.3f} s", markup=False)
        return seconds

    def _message(self, offset: int) -> Message:
        """A message that was never there: a template under a new id."""
        value = self._templates[offset % len(self._templates)]
        # the id is the first field: the header, one byte of length, then its text
        start = HEADER_BYTES + 1
        fresh = ids.new_id(datetime.now(UTC)).encode()
        value = value[:start] + fresh + value[start + len(fresh) :]
        return Message(offset, int(time.time() * 1000), b"key", (), value, None)

    def _maintain(self) -> None:
        for name in (ARCHIVE_TABLE, "inference"):
            maintain(self._lake, name, MaintenanceSettings())


@contextmanager
def _table(home: Path, rows: int) -> Iterator[_Table]:
    ensure_keys(home / "keys")
    lake, clock = Lake(str(home / "lake")), SystemClock()
    tables.ensure(lake)
    store = KeyStore(home / "keystore.sqlite")
    sealer = Sealer(VaultPublic.load(home / "keys"), store, "growth", clock)
    logging.getLogger("afterbay.sink").setLevel(logging.ERROR)  # it warns of every finding
    try:
        with lease(lake):
            yield _Table(lake, Writer(lake, Redactor(), sealer, clock, Metrics("sink")), rows)
    finally:
        store.close()
