"""Events to bytes and back: Avro single-object encoding (Avro 1.12 spec, "Single-object encoding").

In:   a carrier of `events.py`, or the bytes of one Kafka message
Out:  `C3 01` + CRC-64-AVRO fingerprint (little-endian) + Avro body, or the carrier
Refuses: as a `Rejected` value: a tombstone, wrong magic, a fingerprint that none of our schema
      files has, bodies that do not decode, trailing bytes, messages over the size cap
Never: takes a writer schema from anywhere but our own files; puts a payload into a message
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib import resources
from io import BytesIO
from typing import Any

import fastavro
import msgspec
from fastavro.schema import fingerprint, parse_schema, to_parsing_canonical_form
from fastavro.types import Schema

from afterbay.schemas.errors import AfterbayError, Rejected
from afterbay.schemas.events import EVENT_TYPES, Event
from afterbay.schemas.topics import MAX_MESSAGE_BYTES, TOPICS

MAGIC = b"\xc3\x01"
HEADER_BYTES = 10
_BUILTIN = (datetime,)  # msgspec leaves these as they are; Avro takes and gives datetimes
MAX_ITEMS = 262_144
"""Most items one array of an event may have."""


class EncodeError(AfterbayError):
    """A carrier does not fit its schema; a fault of the producer."""


@dataclass(frozen=True, slots=True)
class WriterSchema:
    """One revision of one topic's schema. Made here, read by decoders and the archive."""

    topic: str
    revision: int
    text: str
    """The `.avsc` file as it lies on disk."""
    parsed: Schema
    fingerprint: bytes
    """CRC-64-AVRO of the parsing canonical form, 8 bytes little-endian as on the wire."""

    @property
    def header(self) -> bytes:
        """The ten bytes that every message of this schema starts with."""
        return MAGIC + self.fingerprint


def _load(topic: str, revision: int) -> WriterSchema:
    file = resources.files("afterbay.schemas") / "avro" / topic / f"{revision}.avsc"
    text = file.read_text(encoding="utf-8")
    raw = json.loads(text)
    digest = fingerprint(to_parsing_canonical_form(raw), "CRC-64-AVRO")
    # fastavro gives the fingerprint's bytes in wire order (little-endian) as hex
    return WriterSchema(topic, revision, text, parse_schema(raw), bytes.fromhex(digest))


@cache
def newest(topic: str) -> WriterSchema:
    """The schema that producers of `topic` write; KeyError if there is no such topic."""
    return _load(topic, TOPICS[topic].revision)


@cache
def by_fingerprint() -> dict[bytes, WriterSchema]:
    """Every schema revision we ever published, by its wire fingerprint."""
    every = (_load(t.name, r) for t in TOPICS.values() for r in range(1, t.revision + 1))
    return {schema.fingerprint: schema for schema in every}


def encode(event: Event) -> bytes:
    """Bytes of one Kafka message; EncodeError if the carrier does not fit or is too big."""
    schema = newest(event.TOPIC)
    out = BytesIO()
    out.write(schema.header)
    body = msgspec.to_builtins(event, builtin_types=_BUILTIN)
    try:
        # a tuple in a union is our array, not fastavro's (branch, value) pair
        fastavro.schemaless_writer(out, schema.parsed, body, disable_tuple_notation=True)
    except Exception as error:  # fastavro raises many kinds; none may carry the value outwards
        raise EncodeError(
            f"{event.TOPIC}: the carrier does not fit revision {schema.revision} "
            f"({type(error).__name__}); mend the producer, the value is left out of this message"
        ) from None
    if out.tell() > MAX_MESSAGE_BYTES:
        raise EncodeError(
            f"{event.TOPIC}: {out.tell()} bytes encoded, at most {MAX_MESSAGE_BYTES} fit a message"
        )
    return out.getvalue()


def writer_of(message: bytes | None) -> WriterSchema | Rejected:
    """The schema a message was written with, from its header alone."""
    if message is None:
        return Rejected("tombstone", "value", 0)
    size = len(message)
    if size > MAX_MESSAGE_BYTES:
        return Rejected("oversized", "value", size)
    if size <= HEADER_BYTES:
        return Rejected("short", "header", size)
    if message[:2] != MAGIC:
        return Rejected("magic", "header", size)
    schema = by_fingerprint().get(bytes(message[2:HEADER_BYTES]))
    return schema if schema is not None else Rejected("fingerprint", "header", size)


def decode_record(message: bytes | None, topic: str) -> dict[str, Any] | Rejected:
    """The event as plain values in the newest schema of `topic`, or why it cannot be one."""
    writer = writer_of(message)
    if isinstance(writer, Rejected) or message is None:
        return writer if isinstance(writer, Rejected) else Rejected("tombstone", "value", 0)
    if writer.topic != topic:
        return Rejected("fingerprint", f"schema of {writer.topic}", len(message))
    source = BytesIO(message)
    source.seek(HEADER_BYTES)
    try:
        record = fastavro.schemaless_reader(source, writer.parsed, newest(topic).parsed)
    except Exception as error:  # hostile bytes raise anything; the payload must not leak
        return Rejected("undecodable", type(error).__name__, len(message))
    if source.tell() != len(message):
        return Rejected("trailing", "body", len(message))
    return _capped(record, len(message))


def decode(message: bytes | None, topic: str) -> Event | Rejected:
    """The carrier of one Kafka message of `topic`, or why it cannot be one."""
    record = decode_record(message, topic)
    if isinstance(record, Rejected):
        return record
    try:
        return msgspec.convert(record, EVENT_TYPES[topic], builtin_types=_BUILTIN)
    except msgspec.ValidationError:
        return Rejected("undecodable", "carrier", len(message or b""))


def _capped(record: Any, size: int) -> dict[str, Any] | Rejected:
    for name, value in record.items():
        if isinstance(value, list) and len(value) > MAX_ITEMS:
            return Rejected("oversized", f"items of {name}", size)
    result: dict[str, Any] = record
    return result
