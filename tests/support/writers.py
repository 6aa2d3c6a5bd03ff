"""Owners of a table as processes of their own, all starting their commits at the same moment."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from typing import Any

import pyarrow as pa

from afterbay.lakehouse import tables
from afterbay.lakehouse.lake import Lake
from afterbay.lakehouse.ledger import PartitionsFenced, TableLedger
from afterbay.lakehouse.positions import SourcePartition
from tests.support.lakes import row

TABLE = "loaded"
TOPIC = "policy.loaded.v2"
_context = multiprocessing.get_context("forkserver")

Work = Callable[[Lake, int, Barrier], Any]


def source(partition: int) -> SourcePartition:
    """A partition of the table's topic."""
    return SourcePartition(TOPIC, "id", partition)


def rows(place: SourcePartition, first: int, last: int) -> pa.Table:
    """Rows [first, last) of a partition."""
    found = [
        row(
            TABLE,
            date="2026-03-01",
            _topic=place.topic,
            _topic_id=place.topic_id,
            _partition=place.partition,
            _offset=offset,
        )
        for offset in range(first, last)
    ]
    return pa.Table.from_pylist(found, tables.arrow_schema(TABLE))


def append_many(lake: Lake, number: int, start: Barrier) -> int:
    """Twenty commits to a partition of one's own; how many rows."""
    place, ledger = source(number), TableLedger(lake, TABLE, "sink")
    start.wait()
    for first in range(0, 100, 5):
        ledger.append(rows(place, first, first + 5), {place: first}, {place: first + 5})
    return 100


def race(lake: Lake, number: int, start: Barrier) -> int:
    """Ten times: read the position, wait for the other, append; how many rows went in.

    One appends a row more than the other: the same rows by both would count as done by either.
    """
    place, size, written = source(0), 5 + number, 0
    for _ in range(10):
        ledger = TableLedger(lake, TABLE, "sink")
        first = ledger.next_offsets([place]).get(place, 0)
        start.wait()
        try:
            ledger.append(rows(place, first, first + size), {place: first}, {place: first + size})
            written += size
        except PartitionsFenced:
            pass
        start.wait()
    return written


def together(work: Work, lake: Lake, count: int) -> list[Any]:
    """What `count` processes that do the same work at the same time give back."""
    _context.set_forkserver_preload(["tests.support.writers"])
    start = _context.Barrier(count)
    results: Queue[Any] = _context.Queue()
    processes = [
        _context.Process(target=_report, args=(work, lake, number, start, results))
        for number in range(count)
    ]
    for process in processes:
        process.start()
    found = [results.get(timeout=60) for _ in processes]
    for process in processes:
        process.join(60)
    return found


def _report(work: Work, lake: Lake, number: int, start: Barrier, results: Queue[Any]) -> None:
    results.put(work(lake, number, start))
