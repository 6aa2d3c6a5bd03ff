"""What becomes of the messages of one partition: rows of its table, dead letters, archive rows.

In:   messages of one partition in offset order, as the broker gave them
Out:  `Intake`: columns ready for the archive, the topic's table and the dead letters; events in
      which personal data is found are redacted and encoded anew (`recheck`)
Refuses: as dead letters: what does not decode, ids that are none or lie too far from the broker's
      time, rewards outside [0, 1], texts that cannot be searched
Never: lets one bad message cost its neighbours; keeps the clear bytes of a dead one
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from hashlib import sha256
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from afterbay.lakehouse import tables
from afterbay.lakehouse.archive import Message
from afterbay.lakehouse.positions import SourcePartition
from afterbay.schemas import ids
from afterbay.schemas.clock import from_micros
from afterbay.schemas.topics import DEADLETTER_TABLE, TABLES, TOPICS
from afterbay.streams import columns
from afterbay.streams.letters import SINK, Seals, daily_subject, seal_message
from afterbay.streams.pii import Redactor
from afterbay.streams.recheck import Rechecked, recheck

AHEAD = timedelta(hours=48)
"""How far an id's time may lie after the broker's."""
_UUID7 = "^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$"


@dataclass(frozen=True, slots=True)
class Intake:
    """One partition's share of a flush. Made by `take_in`, written by the sink."""

    archived: tuple[Message, ...]
    """Every message as it is stored, dead ones marked."""
    rows: pa.Table
    """Events, in the columns of the topic's table; in no order that counts."""
    dead: pa.Table
    """Dead letters, in the columns of table `deadletter`."""
    redacted: int
    """Events in which personal data was found, and masked and sealed here."""


def take_in(
    source: SourcePartition, messages: Sequence[Message], redactor: Redactor, sealer: Seals
) -> Intake:
    """Sort out `messages` of one partition."""
    decoded = columns.decode(source.topic, [message.value for message in messages])
    kept = [messages[index] for index in decoded.kept]
    rows = _placed(source, decoded.rows, kept)
    reasons = _reasons(source.topic, rows)
    again = recheck(source.topic, rows, redactor, sealer)
    for row in again.failed:
        reasons[row] = reasons[row] or "redaction_failed"
    refused = {m.offset: r for m, r in zip(kept, reasons, strict=True) if r is not None}
    refused |= {messages[index].offset: found.reason for index, found in decoded.rejected}
    redacted = {
        kept[row].offset: value for row, value in zip(again.found, again.encoded, strict=True)
    }
    event_ids = dict(zip((m.offset for m in kept), _texts(rows, "event_id"), strict=True))
    dead = [
        _dead_letter(source, m, refused[m.offset], sealer) for m in messages if m.offset in refused
    ]
    good = np.array([reason is None for reason in reasons], dtype=np.bool_)
    return Intake(
        archived=tuple(
            _archived(m, event_ids.get(m.offset), redacted.get(m.offset), dead=m.offset in refused)
            for m in messages
        ),
        rows=_passed(rows, good, again),
        dead=pa.Table.from_pylist(dead, tables.arrow_schema(DEADLETTER_TABLE)),
        redacted=sum(offset not in refused for offset in redacted),
    )


def _archived(
    message: Message, event_id: str | None, redacted: bytes | None, *, dead: bool
) -> Message:
    if dead or redacted is None:
        m = message  # written out: `dataclasses.replace` takes 4 us, and this is every message
        return Message(m.offset, m.timestamp_ms, m.key, m.headers, m.value, event_id, dead)
    came_as = sha256(message.value or b"").digest()
    return replace(message, event_id=event_id, value=redacted, came_as=came_as)


def _passed(rows: pa.Table, good: NDArray[np.bool_], again: Rechecked) -> pa.Table:
    """Good rows; those that were redacted come last, the table's writer sorts."""
    found = np.array(again.found, dtype=np.int64)
    untouched = good.copy()
    untouched[found] = False
    masked = again.rows.filter(pa.array(good[found]))
    return pa.concat_tables([rows.filter(pa.array(untouched)), masked])


def past(rows: pa.Table, next_offset: int) -> pa.Table:
    """Rows that a table which stands at `next_offset` has still to take in."""
    return rows.filter(pa.compute.greater_equal(rows.column("_offset"), next_offset))


def _placed(source: SourcePartition, events: pa.Table, kept: Sequence[Message]) -> pa.Table:
    """Events with where they were read and the date their id tells."""
    schema = tables.arrow_schema(TABLES[source.topic])
    count = len(kept)
    offsets = np.fromiter((m.offset for m in kept), np.int64, count)
    stamps = np.fromiter((m.timestamp_ms for m in kept), np.int64, count) * 1000
    extra = {
        "_topic": pa.repeat(source.topic, count),
        "_topic_id": pa.repeat(source.topic_id, count),
        "_partition": pa.repeat(pa.scalar(source.partition, pa.int32()), count),
        "_offset": pa.array(offsets),
        "_ts": pa.array(stamps).cast(schema.field("_ts").type),
        "date": _dates(events, TOPICS[source.topic].date_of),
    }
    taken = {name: events.column(name) for name in events.column_names}
    both = {**taken, **extra}
    return pa.table([both[name] for name in schema.names], schema=schema)


def _millis(column: pl.Expr) -> pl.Expr:
    """Milliseconds that a UUIDv7 was minted at; null if the text is none."""
    digits = column.str.slice(0, 8) + column.str.slice(9, 4)
    return pl.when(column.str.contains(_UUID7)).then(digits.str.to_integer(base=16, strict=False))


def _dates(events: pa.Table, name: str) -> pa.Array:
    frame = pl.DataFrame(pl.from_arrow(events.select([name])))
    day = pl.from_epoch(_millis(pl.col(name)).clip(0, 253_402_300_799_999), time_unit="ms")
    label = day.dt.strftime("%Y-%m-%d").fill_null("none")
    return frame.select(label)[name].to_arrow().cast(pa.string())


def _reasons(topic: str, rows: pa.Table) -> list[str | None]:
    """Why each row is a dead letter; None for a good one."""
    facts = TOPICS[topic]
    names = sorted({"event_id", facts.date_of, "_ts"} | ({"reward"} & set(rows.column_names)))
    frame = pl.DataFrame(pl.from_arrow(rows.select(names)))
    minted, arrived = _millis(pl.col(facts.date_of)), pl.col("_ts").dt.epoch("ms")
    too_old = pl.lit(False) if facts.retention_ms < 0 else minted < arrived - facts.retention_ms
    ahead = minted > arrived + AHEAD // timedelta(milliseconds=1)
    reason = (
        pl.when(_millis(pl.col("event_id")).is_null() | minted.is_null())
        .then(pl.lit("event_id"))
        .when(too_old | ahead)
        .then(pl.lit("event_time"))
    )
    if "reward" in names:
        outside = ~pl.col("reward").is_between(0, 1) | pl.col("reward").is_nan()
        reason = reason.when(outside).then(pl.lit("out_of_range"))
    found: list[str | None] = frame.select(reason.alias("reason"))["reason"].to_list()
    return found


def _texts(rows: pa.Table, name: str) -> list[str]:
    values: list[str] = rows.column(name).to_pylist()
    return values


def _dead_letter(
    source: SourcePartition, message: Message, reason: str, sealer: Seals
) -> dict[str, Any]:
    """One row of table `deadletter`; the same message gives the same id, whoever reads it."""
    place = f"{source.topic_id}/{source.partition}/{message.offset}".encode()
    at = from_micros(message.timestamp_ms * 1000)
    event_id = ids.new_id(at, sha256(place).digest()[:10])
    subject = daily_subject(at)
    sealed = seal_message(sealer, event_id, subject, message)
    return {
        "event_id": event_id,
        "source_topic": source.topic,
        "stage": SINK,
        "reason": reason,
        "sha256": sha256(message.value or b"").hexdigest(),
        "subject": subject,
        "key_id": sealed.key_id,
        "sealed": sealed.ciphertext,
        "_topic": source.topic,
        "_topic_id": source.topic_id,
        "_partition": source.partition,
        "_offset": message.offset,
        "_ts": at,
        "date": f"{at:%Y-%m-%d}",
    }
