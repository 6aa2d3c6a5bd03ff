"""Our side: the sink as the supervisor starts it, on a topic that is full or being filled.

In:   a topic, how many sink processes
Out:  `Run`; lags of single rows
Never: leaves a part out: redaction, sealing, archive, leaves, key store and fsync are all in

Time runs from the start of the first process to the moment at which the last of the commits that
hold the topic's rows appeared in the log of the table, and of the archive.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from afterbay.lakehouse import tables
from afterbay.lakehouse.lake import Lake
from afterbay.platform.processes import python_module
from afterbay.schemas.topics import ARCHIVE_TABLE
from afterbay.streams.kafka import KafkaAddress
from afterbay.streams.keys import ensure_keys
from tests.bench.ingest_spark import Run
from tests.bench.usage import watched

TABLE = "inference"
FLUSH_S = 2.0
"""A run ends with a flush that waits for its time: less than this is idle at the end."""
_PATIENCE_S = 900.0

Processes = Sequence[subprocess.Popen[bytes]]


def run(
    log: KafkaAddress,
    home: Path,
    rows: int,
    processes: int = 1,
    settings: Mapping[str, str] | None = None,
) -> Run:
    """Read the whole topic, which holds `rows` events, with so many sinks."""
    prepare(home)
    begin = time.time()
    with (
        sinks(log, home, processes, settings or {}) as started,
        watched(process.pid for process in started) as usage,
    ):
        end = _wait(home, rows, started)
    return Run(end - begin, rows, usage.cpu_s, usage.peak_bytes, home / "lake" / TABLE)


def prepare(home: Path) -> None:
    """Empty tables and keys."""
    (home / "run").mkdir(parents=True)
    ensure_keys(home / "keys")
    tables.ensure(Lake(str(home / "lake")))


@contextmanager
def sinks(
    log: KafkaAddress, home: Path, processes: int, settings: Mapping[str, str]
) -> Iterator[Processes]:
    """Sinks that live for the block."""
    environ = os.environ | {
        "AFTERBAY_HOME": str(home),
        "AFTERBAY_BOOTSTRAP": log.bootstrap,
        "AFTERBAY_TOPIC_PREFIX": log.prefix,
        "AFTERBAY_FLUSH_S": f"{FLUSH_S:g}",
        **settings,
    }
    command = python_module("afterbay.platform.agents", "sink")
    with (home / "run" / "sink.log").open("ab") as out:
        started = [
            subprocess.Popen(command, env=environ, stdout=out, stderr=out) for _ in range(processes)
        ]
    try:
        yield started
        for process in started:
            process.send_signal(signal.SIGTERM)
        for process in started:
            process.wait(60)
    finally:
        for process in started:
            process.kill()
            process.wait()


class Commits:
    """What the commits of one table brought, read from its log as they come."""

    def __init__(self, table: Path) -> None:
        self._log = table / "_delta_log"
        self._next = 0
        self.rows = 0
        """Rows added so far."""
        self.at = 0.0
        """When the newest commit that added rows appeared, seconds since the epoch."""
        self.files: list[tuple[float, Path]] = []
        """When it appeared, and the data file, of everything added."""

    def look(self) -> int:
        """Read what is new; rows so far."""
        while (file := self._log / f"{self._next:020}.json").exists():
            at = file.stat().st_mtime
            for line in file.read_text("utf-8").splitlines():
                added = json.loads(line).get("add")
                if added:
                    self.rows += json.loads(added["stats"])["numRecords"]
                    self.at = at
                    self.files.append((at, self._log.parent / unquote(added["path"])))
            self._next += 1
        return self.rows


def _wait(home: Path, rows: int, started: Processes) -> float:
    """When the last row had come into table and archive."""
    watched_tables = [Commits(home / "lake" / name) for name in (TABLE, ARCHIVE_TABLE)]
    deadline = time.monotonic() + _PATIENCE_S
    while min(table.look() for table in watched_tables) < rows:
        alive = all(process.poll() is None for process in started)
        if time.monotonic() > deadline or not alive:
            raise RuntimeError(f"not every row came; see {home / 'run' / 'sink.log'}")
        time.sleep(0.05)
    return max(table.at for table in watched_tables)


def lags(home: Path, rows: int, started: Processes) -> NDArray[np.float64]:
    """Seconds from the broker's time of each event to the commit that holds its row."""
    _wait(home, rows, started)
    commits = Commits(home / "lake" / TABLE)
    commits.look()
    found = [
        at - pq.read_table(file, columns=["_ts"]).column("_ts").to_numpy().astype("int64") / 1e6
        for at, file in commits.files
    ]
    return np.concatenate(found)
