"""The archive: the stored bytes of every event, every skipped offset, and a Merkle leaf for each.

In:   messages of one partition in offset order, and where the partition was read up to before
Out:  rows for the table `archive` (`rows`, `gap_row`), events again as plain values (`replay`)
Refuses: messages that are not in offset order, or bytes for a dead one, with BadState
Never: stores the bytes, key or headers of a message that was dead-lettered, only their hashes; nor
      the bytes of one in which the sink found personal data, but the redacted event and the hash
      of what came (`_bytes_sha256`); its leaf is that of the stored bytes, as every leaf

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

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from afterbay.lakehouse import merkle, tables
from afterbay.lakehouse.files import whole
from afterbay.lakehouse.lake import Lake
from afterbay.lakehouse.positions import SourcePartition
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
    came_as: bytes | None = None
    """SHA-256 of the bytes that came, if `value` is not those: the sink redacted them."""


def rows(source: SourcePartition, next_offset: int, messages: Sequence[Message]) -> pa.Table:
    """Archive rows of `messages`; `next_offset` is where the archive's partition ended before."""
    offsets = np.fromiter((m.offset for m in messages), np.int64, len(messages))
    before = np.concatenate([[next_offset - 1], offsets[:-1]]) if len(offsets) else offsets
    gaps = offsets - before - 1
    if (gaps < 0).any():
        first = int(np.argmax(gaps < 0))
        raise BadState(
            f"archive: offset {offsets[first]} of {source.topic}/{source.partition} comes "
            f"after {before[first]}; messages must be in offset order"
        )
    columns = _columns(source, messages)
    columns |= {"_offset": pa.array(offsets), "_gap_before": pa.array(gaps)}
    schema = _schema()
    return pa.table([columns[name] for name in schema.names], schema=schema)


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
        found = _day(whole(lake, ARCHIVE_TABLE, table), date, start, end, topic)
        for batch in found.to_batches(max_chunksize=1_000):
            yield from map(_replayed, batch.to_pylist())


def redacted(lake: Lake, source: SourcePartition, start: int, end: int) -> dict[int, bytes]:
    """Stored bytes, by offset in [start, end), of the events that the sink redacted."""
    dataset = whole(lake, ARCHIVE_TABLE, tables.open(lake, ARCHIVE_TABLE))
    wanted = (pc.field("_topic") == source.topic) & (pc.field("_topic_id") == source.topic_id)
    wanted &= (pc.field("_partition") == source.partition) & (pc.field("_kind") == EVENT)
    wanted &= (pc.field("_offset") >= start) & (pc.field("_offset") < end)
    wanted &= pc.field("_bytes_sha256").is_valid()
    found = dataset.to_table(columns=["_offset", "_bytes"], filter=wanted)
    offsets, values = (found.column(name).to_pylist() for name in ("_offset", "_bytes"))
    return dict(zip(offsets, values, strict=True))


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


def _columns(source: SourcePartition, messages: Sequence[Message]) -> dict[str, pa.Array]:
    """Every column but offset and gap."""
    count = len(messages)
    millis = np.fromiter((m.timestamp_ms for m in messages), np.int64, count)
    dead = np.fromiter((m.dead for m in messages), np.bool_, count)
    hashes = [_hashes(m) for m in messages]
    kept = {
        "_key": [None if m.dead else m.key for m in messages],
        "_bytes": [None if m.dead else m.value or b"" for m in messages],
        "_fingerprint": [None if m.dead else _fingerprint(m.value) for m in messages],
        "_event_id": [m.event_id for m in messages],
        "_leaf": [_leaf(source, m, h) for m, h in zip(messages, hashes, strict=True)],
    }
    lost = {
        name: [h[part] if m.dead else None for m, h in zip(messages, hashes, strict=True)]
        for part, name in enumerate(("_key_sha256", "_headers_sha256"))
    }
    # what came and is not stored: of a dead message, and of one that the sink redacted
    came = [h[2] if m.dead else m.came_as for m, h in zip(messages, hashes, strict=True)]
    schema = _schema()
    lists = {**kept, **lost, "_bytes_sha256": came}
    return {
        **{name: pa.array(values, schema.field(name).type) for name, values in lists.items()},
        "_topic": pa.repeat(source.topic, count),
        "_topic_id": pa.repeat(source.topic_id, count),
        "_partition": pa.repeat(pa.scalar(source.partition, pa.int32()), count),
        "_ts": pa.array(millis * 1000).cast(schema.field("_ts").type),
        "_kind": pa.array(np.where(dead, DEAD, EVENT).tolist(), pa.string()),
        "_headers": _headers([() if m.dead else m.headers for m in messages], dead),
        "date": _labels(millis),
    }


def _hashes(message: Message) -> tuple[bytes, bytes, bytes]:
    return (
        sha256(message.key or b"").digest(),
        merkle.headers_hash(message.headers) if message.headers else _NO_HASH,
        sha256(message.value or b"").digest(),
    )


def _leaf(source: SourcePartition, message: Message, hashes: tuple[bytes, bytes, bytes]) -> bytes:
    place = (source.topic_id, source.partition, message.offset, message.timestamp_ms)
    return merkle.leaf_hash(merkle.leaf_data(*place, hashes))


def _fingerprint(value: bytes | None) -> bytes | None:
    return value[2:HEADER_BYTES] if value is not None and value[:2] == MAGIC else None


def _headers(of: Sequence[Sequence[merkle.Header]], dead: NDArray[np.bool_]) -> pa.Array:
    """Headers of each message as a list of (name, value); null for a dead one."""
    flat = [header for headers in of for header in headers]
    kind = _schema().field("_headers").type
    structs = pa.StructArray.from_arrays(
        [pa.array([n for n, _ in flat], pa.string()), pa.array([v for _, v in flat], pa.binary())],
        fields=list(kind.value_type),
    )
    ends = np.cumsum([0, *map(len, of)], dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(ends), structs, type=kind, mask=pa.array(dead))


def _labels(millis: NDArray[np.int64]) -> pa.Array:
    """UTC date of each time; a batch holds few dates, so each is written once."""
    days, index = np.unique(millis // 86_400_000, return_inverse=True)
    names = pa.array(days.astype("datetime64[D]").astype(str).tolist(), pa.string())
    return names.take(pa.array(index))


def _schema() -> pa.Schema:
    return tables.arrow_schema(ARCHIVE_TABLE)
