"""Decode many messages of one topic into columns, and name those that are no event.

In:   message values of one topic, in any revision we ever published
Out:  `Decoded`: event columns in the newest schema, the place of each row, the rejected ones; and
      rows as messages again (`encode_rows`)
Refuses: as `Rejected` values, what `codec` refuses; a bad message never costs its neighbours
Never: believes the fast decoder blindly: it ignores trailing bytes and takes invalid UTF-8, so
       every row's encoded size is compared with what came, and every text is validated

The good path is columnar (pyruhvro). A batch that fails is halved until the culprit is alone; that
one, older revisions and every size mismatch go through the exact record reader of `codec`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyruhvro
from numpy.typing import NDArray

from afterbay.lakehouse import tables
from afterbay.schemas.codec import HEADER_BYTES, decode_record, newest
from afterbay.schemas.errors import Rejected
from afterbay.schemas.topics import MAX_MESSAGE_BYTES, TABLES
from afterbay.streams.sizes import encoded_sizes

Indices = NDArray[np.int64]
Part = tuple[Indices, pa.Table]
"""Rows and the index of each among the messages."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """Messages as columns. Made by `decode`, read by the sink."""

    rows: pa.Table
    """One row an event: the event's own columns, as its table has them."""
    kept: Indices
    """Index of each row among the messages; ascending."""
    rejected: tuple[tuple[int, Rejected], ...]
    """Index among the messages and why; ascending."""


def decode(topic: str, messages: Sequence[bytes | None]) -> Decoded:
    """Events of `topic` among `messages`, as columns."""
    header = newest(topic).header
    usual = [i for i, message in enumerate(messages) if _is_usual(message, header)]
    parts = _by_columns(topic, messages, np.array(usual, dtype=np.int64))
    done = [indices for indices, _ in parts]
    left = np.setdiff1d(np.arange(len(messages)), np.concatenate(done) if done else [])
    exact, rejected = _by_record(topic, messages, left)
    return Decoded(*_merged([*parts, exact]), rejected)


def encode_rows(topic: str, rows: pa.Table) -> tuple[bytes, ...]:
    """Each row as the bytes of a message: the very bytes that `codec.encode` makes of the event.

    `rows` have at least the event's own columns.
    """
    if rows.num_rows == 0:
        return ()
    schema = newest(topic)
    (batch,) = rows.select(event_columns(topic).names).combine_chunks().to_batches()
    bodies = pyruhvro.serialize_record_batch(batch, schema.text, 1)
    return tuple(schema.header + body for part in bodies for body in part.to_pylist())


@cache
def event_columns(topic: str) -> pa.Schema:
    """Columns of an event of `topic`, in the order of its newest schema."""
    fields = _fields(topic)["fields"]
    table = tables.arrow_schema(TABLES[topic])
    return pa.schema([table.field(field["name"]) for field in fields])


@cache
def _fields(topic: str) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads(newest(topic).text)
    return schema


def _is_usual(message: bytes | None, header: bytes) -> bool:
    return (
        message is not None
        and HEADER_BYTES < len(message) <= MAX_MESSAGE_BYTES
        and message.startswith(header)
    )


def _by_columns(topic: str, messages: Sequence[bytes | None], indices: Indices) -> list[Part]:
    """Those of `indices` that the fast decoder reads exactly; the others are left out."""
    if len(indices) == 0:
        return []
    bodies = [(messages[i] or b"")[HEADER_BYTES:] for i in indices]
    try:
        batch = pyruhvro.deserialize_array(bodies, newest(topic).text)
        batch.validate(full=True)
    except ValueError:  # its errors and Arrow's are ValueErrors
        half = len(indices) // 2
        if half == 0:
            return []
        return [
            *_by_columns(topic, messages, indices[:half]),
            *_by_columns(topic, messages, indices[half:]),
        ]
    came = np.fromiter(map(len, bodies), dtype=np.int64, count=len(bodies))
    exact = encoded_sizes(batch, _fields(topic)) == came
    rows = pa.Table.from_batches([batch]).cast(event_columns(topic))
    return [(indices[exact], rows if exact.all() else rows.filter(pa.array(exact)))]


def _by_record(
    topic: str, messages: Sequence[bytes | None], indices: Indices
) -> tuple[Part, tuple[tuple[int, Rejected], ...]]:
    read = [(int(i), _row(messages[i], topic)) for i in indices]
    rejected = tuple((i, found) for i, found in read if isinstance(found, Rejected))
    rows = [(i, found) for i, found in read if not isinstance(found, Rejected)]
    none = event_columns(topic).empty_table()
    places = np.array([i for i, _ in rows], dtype=np.int64)
    return (places, pa.concat_tables([none, *(row for _, row in rows)])), rejected


def _row(message: bytes | None, topic: str) -> pa.Table | Rejected:
    found = decode_record(message, topic)
    if isinstance(found, Rejected):
        return found
    try:
        return pa.Table.from_pylist([found], event_columns(topic))
    except (pa.ArrowInvalid, OverflowError):  # Avro's writers do not hold a number to its width
        return Rejected("out_of_range", topic, len(message or b""))


def _merged(parts: Sequence[Part]) -> tuple[pa.Table, Indices]:
    rows = pa.concat_tables([table for _, table in parts])
    indices = np.concatenate([indices for indices, _ in parts])
    order = np.argsort(indices, kind="stable")
    if (order == np.arange(len(order))).all():
        return rows, indices
    return rows.take(order), indices[order]
