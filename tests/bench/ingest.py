"""Kafka to Delta, personal data masked: ours beside Spark Structured Streaming on the same topic.

The topic is unredacted (`ingest_topic`). Ours masks by check digits, seals every value, archives
the redacted bytes with hashes and Merkle leaves, and fsyncs; Spark masks with three regular
expressions and writes. Rounds are interleaved, figures are medians; once both tables are compared
row by row. Then ours alone: partitions, processes, and lag at a steady rate.

EVENTS (400000), ROUNDS (3), SPARK=0 leaves Spark out. `growth` measures the path as tables grow.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from statistics import median

import numpy as np
from confluent_kafka import Producer
from rich.console import Console

from afterbay.platform.broker import EmbeddedBroker
from afterbay.platform.home import Home
from afterbay.streams.admin import ensure_topics
from afterbay.streams.kafka import KafkaAddress
from tests.bench import ingest_ours, ingest_topic
from tests.bench.harness import Figure, Peer, Reach
from tests.bench.ingest_compare import compare
from tests.bench.ingest_spark import Run, Spark

SEED = 4
PARTITIONS = 4
LAG_RATE, LAG_S = 5_000, 20
_PEER = "Spark local[2]"
_say = Console().print


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured. Read from the environment by `measure`."""

    events: int
    rounds: int
    spark: bool


def measure(folder: Path) -> list[Figure]:
    """Everything, on a broker of its own."""
    size = Size(
        events=int(os.environ.get("EVENTS") or 400_000),
        rounds=int(os.environ.get("ROUNDS") or 3),
        spark=os.environ.get("SPARK") != "0",
    )
    spark = Spark(folder.parent) if size.spark else None
    with _broker(folder) as bootstrap:
        log = _filled(bootstrap, PARTITIONS, size.events)
        runs = _rounds(log, folder, size, spark)
        return [*_compared(runs, size), *_scaled(bootstrap, folder, size), *_lag(bootstrap, folder)]


@contextmanager
def _broker(folder: Path) -> Iterator[str]:
    broker = EmbeddedBroker(Home(folder / "broker"))
    broker.start()
    try:
        yield broker.bootstrap
    finally:
        broker.stop()


def _filled(bootstrap: str, partitions: int, events: int) -> KafkaAddress:
    log = KafkaAddress(bootstrap, prefix=f"p{partitions}.")
    begin = time.perf_counter()
    size = ingest_topic.produce(log, partitions, events, SEED)
    seconds = time.perf_counter() - begin
    _say(
        f"{events:,} events of {size / events:.0f} B on {partitions} partitions, {seconds:.0f} s",
        markup=False,
    )
    return log


def _rounds(
    log: KafkaAddress, folder: Path, size: Size, spark: Spark | None
) -> dict[str, list[Run]]:
    """Runs of each side, interleaved; after the first round both tables are compared."""
    runs: dict[str, list[Run]] = {"spark": [], "1": [], "2": []}
    for number in range(size.rounds):
        here = folder / f"round-{number}"
        if spark is not None:
            runs["spark"].append(_told("Spark", spark.run(log, here / "spark")))
        for processes in (1, 2):
            run = ingest_ours.run(log, here / f"ours-{processes}", size.events, processes)
            runs[str(processes)].append(_told(f"ours, {processes} sink process(es)", run))
            if number == 0 and spark is not None:
                found = compare(run.table, runs["spark"][0].table, size.events)
                _say(f"  compared {found.rows:,} rows, {found.masked:,} of them masked alike")
        shutil.rmtree(here)
    return runs


def _told(name: str, run: Run) -> Run:
    _say(
        f"{name}: {run.rate:,.0f} rows/s, {run.seconds:.1f} s, CPU {run.cpu_s:.1f} s, "
        f"{run.peak_bytes / 2**20:,.0f} MiB",
        markup=False,
    )
    return run


def _compared(runs: dict[str, list[Run]], size: Size) -> Iterator[Figure]:
    """Rate, CPU and memory of ours, beside Spark's where it ran."""
    theirs = runs["spark"]
    for processes in ("1", "2"):
        side = f"{processes} sink process{'es' if processes != '1' else ''}"
        ours = runs[processes]
        rate = _figure(f"rows a second, {side}", "rows/s", ours, theirs, "rate")
        yield replace(rate, reach=Reach(">=", 5) if theirs else None)
        yield _figure(f"CPU for {size.events:,} rows, {side}", "s", ours, theirs, "cpu_s")
        peak = _figure(f"peak memory, {side}", "bytes", ours, theirs, "peak_bytes")
        yield replace(peak, reach=Reach("<=", 0.5) if theirs else None)


def _figure(name: str, unit: str, ours: Sequence[Run], theirs: Sequence[Run], what: str) -> Figure:
    def of(runs: Sequence[Run]) -> float:
        return float(median(getattr(run, what) for run in runs))

    peer = Peer(_PEER, of(theirs)) if theirs else None
    return Figure(name=name, value=of(ours), unit=unit, n=len(ours), peer=peer)


def _scaled(bootstrap: str, folder: Path, size: Size) -> Iterator[Figure]:
    """Ours on fewer partitions, with one process and with two."""
    events = max(1, size.events // 2)
    for partitions in (1, 2):
        log = _filled(bootstrap, partitions, events)
        for processes in range(1, partitions + 1):
            home = folder / f"scaled-{partitions}-{processes}"
            run = _told(
                f"{partitions} partition(s), {processes} process(es)",
                ingest_ours.run(log, home, events, processes),
            )
            shutil.rmtree(home)
            yield Figure(
                name=f"rows a second, partitions {partitions}, sink processes {processes}",
                value=run.rate,
                unit="rows/s",
                n=1,
            )


def _lag(bootstrap: str, folder: Path) -> Iterator[Figure]:
    """From the broker's clock to the commit, with the demo's flush of one second."""
    log, home, count = KafkaAddress(bootstrap, prefix="lag."), folder / "lag", LAG_RATE * LAG_S
    ensure_topics(log, PARTITIONS)
    ingest_ours.prepare(home)
    messages = list(ingest_topic.messages(count, SEED + 1))
    with ingest_ours.sinks(log, home, 1, {"AFTERBAY_FLUSH_S": "1"}) as started:
        time.sleep(5)  # it has its partitions, and waits
        _steadily(log, messages)
        lags = ingest_ours.lags(home, count, started)
    for name, share in (("p50", 50), ("p99", 99)):
        yield Figure(
            name=f"lag to table {name} at {LAG_RATE:,} events/s, flush every 1 s",
            value=float(np.percentile(lags, share)),
            unit="s",
            n=len(lags),
        )


def _steadily(log: KafkaAddress, messages: Sequence[ingest_topic.Message]) -> None:
    """Send at LAG_RATE, in a hundred bursts a second."""
    producer = Producer({"bootstrap.servers": log.bootstrap, "linger.ms": 5})
    burst, begin, left = LAG_RATE // 100, time.perf_counter(), iter(messages)
    for number in range(LAG_S * 100):
        for message in islice(left, burst):
            producer.produce(log.topic(ingest_topic.TOPIC), message.value, message.key)
        producer.poll(0)
        time.sleep(max(0.0, begin + (number + 1) / 100 - time.perf_counter()))
    producer.flush(30)
