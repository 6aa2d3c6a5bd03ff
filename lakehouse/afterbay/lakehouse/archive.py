"""The archive: the stored bytes of every event, every skipped offset, and a Merkle leaf for each.

In:   messages of one partition in offset order, and where the partition was read up to before
Out:  rows for the table `archive` (`rows`, `gap_row`), events again as plain values (`replay`)
Refuses: messages that are not in offset order, or bytes for a dead one, with BadState
Never: stores the bytes, key or headers of a message that was dead-lettered, only their hashes

A row covers the offsets [`_offset` - `_gap_before`, `_offset`]; rows of a partition cover
[0, next) without hole or overlap. The first append of a partition starts at 0, even if the broker
no longer holds what came before the first message.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from afterbay.lakehouse import merkle, tables
from afterbay.lakehouse.lake import Lake
from afterbay.lakehouse.positions import SourcePartition
from afterbay.schemas.clock import from_micros
from afterbay.schemas.codec import HEADER_BYTES, MAGIC, decode_record
from afterbay.schemas.errors import BadState, Rejected
from afterbay.schemas.topics import ARCHIVE_TABLE

EVENT, DEAD, GAP = "event", "dead", "gap"
_NO_HASH = sha256(b"").digest()


@dataclass(frozen=True, slots=True)
class Message:
    """One message as the broker gave it. Made by the sink, read by `rows`."""

    offset: int
    timestamp_ms: int
    """LogAppendTime, milliseconds since the epoch."""
    key: bytes | None
    headers: tuple[merkle.Header, ...]
    value: bytes | None
    """Bytes to store; of a dead message the bytes to hash (None: a tombstone)."""
    event_id: str | None
    """Id of the event; None if it is dead and has none."""
    dead: bool = False
    """True if it went to the dead letters: its contents are not stored."""


def rows(source: SourcePartition, next_offset: int, messages: Sequence[Message]) -> pa.Table:
    """Archive rows of `messages`; `next_offset` is where the archive's partition ended before."""
    columns: dict[str, list[Any]] = {name: [] for name in _schema().names}
    expected = next_offset
    for message in messages:
        if message.offset < expected:
            raise BadState(
                f"archive: offset {message.offset} of {source.topic}/{source.partition} comes "
                f"after {expected - 1}; messages must be in offset order"
            )
        _put(columns, source, message, message.offset - expected)
        expected = message.offset + 1
    return pa.table(columns, schema=_schema())


def gap_row(source: SourcePartition, next_offset: int, end: int, now: datetime) -> pa.Table:
    """The row that says: nothing is stored at the offsets [next_offset, end)."""
    if end <= next_offset:
        raise BadState(f"archive: no gap between {next_offset} and {end}")
    row: dict[str, Any] = dict.fromkeys(_schema().names)
    row |= {"_topic": source.topic, "_topic_id": source.topic_id, "_partition": source.partition}
    row |= {"_offset": end - 1, "_gap_before": end - 1 - next_offset, "_kind": GAP}
    row |= {"_ts": now, "date": now.astimezone(UTC).strftime("%Y-%m-%d")}
    return pa.Table.from_pylist([row], schema=_schema())


def replay(
    lake: Lake, start: datetime, end: datetime, topic: str | None = None
) -> Iterator[dict[str, Any]]:
    """Events whose broker time lies in [start, end), by time, then topic, partition and offset.

    Each is {topic, topic_id, partition, offset, ts, kind, event}; `event` is None if it is dead or
    an older schema that we no longer have. Gap rows are left out.
    """
    table = tables.open(lake, ARCHIVE_TABLE)
    for date in _dates(table.partitions(), start, end):
        found = _day(table.to_pyarrow_dataset(), date, start, end, topic)
        for batch in found.to_batches(max_chunksize=1_000):
            yield from map(_replayed, batch.to_pylist())


def _day(dataset: Any, date: str, start: datetime, end: datetime, topic: str | None) -> pa.Table:
    wanted = (pc.field("date") == date) & (pc.field("_kind") != GAP)
    wanted &= (pc.field("_ts") >= start) & (pc.field("_ts") < end)
    if topic is not None:
        wanted &= pc.field("_topic") == topic
    names = [*_ORDER, "_kind", "_bytes"]
    found: pa.Table = dataset.to_table(columns=names, filter=wanted)
    return found.sort_by([(name, "ascending") for name in _ORDER])


_ORDER = ("_ts", "_topic", "_topic_id", "_partition", "_offset")


def _dates(partitions: list[dict[str, str]], start: datetime, end: datetime) -> list[str]:
    low, high = (at.astimezone(UTC).strftime("%Y-%m-%d") for at in (start, end))
    return sorted({p["date"] for p in partitions if low <= p["date"] <= high})


def _replayed(row: dict[str, Any]) -> dict[str, Any]:
    event = None if row["_bytes"] is None else decode_record(row["_bytes"], row["_topic"])
    return {
        "topic": row["_topic"],
        "topic_id": row["_topic_id"],
        "partition": row["_partition"],
        "offset": row["_offset"],
        "ts": row["_ts"],
        "kind": row["_kind"],
        "event": None if isinstance(event, Rejected) else event,
    }


def _put(
    columns: dict[str, list[Any]], source: SourcePartition, message: Message, gap: int
) -> None:
    hashes = (
        sha256(message.key or b"").digest(),
        merkle.headers_hash(message.headers) if message.headers else _NO_HASH,
        sha256(message.value or b"").digest(),
    )
    place = (source.topic_id, source.partition, message.offset, message.timestamp_ms)
    row = _dead_row(hashes) if message.dead else _event_row(message)
    at = from_micros(message.timestamp_ms * 1000)
    row |= {"_topic": source.topic, "_topic_id": source.topic_id, "_partition": source.partition}
    row |= {"_offset": message.offset, "_ts": at, "date": at.strftime("%Y-%m-%d")}
    row |= {"_event_id": message.event_id, "_gap_before": gap}
    row["_leaf"] = merkle.leaf_hash(merkle.leaf_data(*place, hashes))
    for name, column in columns.items():
        column.append(row.get(name))


def _event_row(message: Message) -> dict[str, Any]:
    value = message.value or b""
    return {
        "_kind": EVENT,
        "_key": message.key,
        "_headers": [{"name": n, "value": v} for n, v in message.headers],
        "_bytes": value,
        "_fingerprint": value[2:HEADER_BYTES] if value[:2] == MAGIC else None,
    }


def _dead_row(hashes: tuple[bytes, bytes, bytes]) -> dict[str, Any]:
    names = ("_key_sha256", "_headers_sha256", "_bytes_sha256")
    return {"_kind": DEAD, **dict(zip(names, hashes, strict=True))}


def _schema() -> pa.Schema:
    return tables.arrow_schema(ARCHIVE_TABLE)
