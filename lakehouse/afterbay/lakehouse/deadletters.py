"""Dead letters: what was refused, where, why, and whether it was sent again.

In:   table `deadletter`; the archive, which keeps the header that a letter sent again carries
Out:  `Facts` (without contents), counts by topic and reason, `DeadLetter`s with what is sealed
Refuses: an id that is no dead letter's (BadSettings)
Never: opens a sealed value; reads one where only its size is asked for
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from afterbay.lakehouse import tables
from afterbay.lakehouse.archive import DEAD
from afterbay.lakehouse.files import whole
from afterbay.lakehouse.lake import Lake
from afterbay.lakehouse.merkle import headers_hash
from afterbay.schemas.errors import BadSettings
from afterbay.schemas.topics import ARCHIVE_TABLE, DEADLETTER_TABLE

REDRIVE_HEADER = "redrive_of"
"""Kafka header of a message that was sent again: the id of its dead letter."""
_SEAL_BYTES = 28
"""Nonce and tag around a sealed value."""
_FACTS = ("event_id", "source_topic", "stage", "reason", "sha256", "subject", "key_id")
_PLACE = ("_topic", "_topic_id", "_partition", "_offset", "_ts")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which dead letters. Made by commands."""

    topic: str = ""
    """Source topic; empty: any."""
    reason: str = ""
    """Empty: any."""
    since: datetime | None = None
    """Broker time of the refused message, or of the flusher's letter."""
    ids: tuple[str, ...] = ()
    """Only these; empty: any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """One dead letter without its contents. Made by `facts`, shown to people."""

    event_id: str
    at: datetime
    """Broker time of the refused message, or of the flusher's letter."""
    source_topic: str
    reason: str
    stage: str
    bytes: int
    """Size of what is sealed, to within two bytes: the message with its key; a ring record,
    compressed."""
    sha256: str
    """Of the refused bytes, hex."""
    subject: str | None
    """Pseudonym of the person; None if it is not known."""
    key_id: str
    topic: str
    """Where it was read: the source topic itself, or `deadletter.v2`."""
    partition: int
    offset: int
    redriven: datetime | None = None
    """Broker time at which it was archived again; None if it was not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """One dead letter with what is sealed. Made by `letters`, opened by `streams.letters`."""

    event_id: str
    at: datetime
    source_topic: str
    reason: str
    stage: str
    key_id: str
    sealed: str
    """Base64 of nonce, ciphertext and tag."""


def facts(lake: Lake, wanted: Wanted, limit: int = 0) -> list[Facts]:
    """The newest `limit` (0: all) dead letters, newest first."""
    size = pc.binary_length(ds.field("sealed"))
    columns = {name: ds.field(name) for name in (*_FACTS, *_PLACE)} | {"bytes": size}
    found = _read(lake, wanted, columns).sort_by(
        [("_ts", "descending"), ("event_id", "descending")]
    )
    rows = (found.slice(0, limit) if limit else found).to_pylist()
    again = redriven(lake, [(row["event_id"], row["source_topic"], row["_ts"]) for row in rows])
    return [_facts(row, again.get(row["event_id"])) for row in rows]


def summary(lake: Lake, wanted: Wanted) -> list[tuple[str, str, int]]:
    """(source topic, reason, how many), the most frequent first."""
    columns = {name: ds.field(name) for name in ("source_topic", "reason")}
    frame = pl.DataFrame(pl.from_arrow(_read(lake, wanted, columns)))
    counts = frame.group_by("source_topic", "reason").len()
    return list(
        counts.sort(["len", "source_topic", "reason"], descending=[True, False, False]).iter_rows()
    )


def letters(lake: Lake, wanted: Wanted) -> list[DeadLetter]:
    """Dead letters with what is sealed, oldest first; BadSettings for an id that is none's."""
    names = ("event_id", "_ts", "source_topic", "reason", "stage", "key_id", "sealed")
    found = _read(lake, wanted, {name: ds.field(name) for name in names})
    rows = found.sort_by([("_ts", "ascending"), ("event_id", "ascending")]).to_pylist()
    _check_known(wanted.ids, [row["event_id"] for row in rows])
    return [DeadLetter(at=row.pop("_ts"), **row) for row in rows]


def redriven(lake: Lake, asked: Sequence[tuple[str, str, datetime]]) -> dict[str, datetime]:
    """When each of these (id, source topic, time) was first archived again, by id.

    Of a message that was refused again the archive keeps only the hash of its headers: it is known
    if it had no header but ours.
    """
    if not asked:
        return {}
    of_hash = {headers_hash([(REDRIVE_HEADER, name.encode())]): name for name, _, _ in asked}
    field = ds.field
    where = (field("date") >= f"{min(at for _, _, at in asked):%Y-%m-%d}") & field("_topic").isin(
        sorted({topic for _, topic, _ in asked})
    )
    sent = (pc.list_value_length(field("_headers")) > 0) | (field("_kind") == DEAD)
    rows = _dataset(lake, ARCHIVE_TABLE).to_table(
        columns=["_ts", "_headers", "_headers_sha256"], filter=where & sent
    )
    found: dict[str, datetime] = {}
    for row in rows.sort_by("_ts").to_pylist():
        name = _redrive_of(row["_headers"]) or of_hash.get(row["_headers_sha256"])
        if name is not None:
            found.setdefault(name, row["_ts"])
    return found


def _redrive_of(headers: Iterable[dict[str, Any]] | None) -> str | None:
    values = [h["value"] for h in headers or () if h["name"] == REDRIVE_HEADER]
    return values[-1].decode("ascii", "replace") if values and values[-1] is not None else None


def _facts(row: dict[str, Any], redriven_at: datetime | None) -> Facts:
    return Facts(
        **{name: row[name] for name in _FACTS},
        at=row["_ts"],
        bytes=max(0, row["bytes"] // 4 * 3 - _SEAL_BYTES),
        topic=row["_topic"],
        partition=row["_partition"],
        offset=row["_offset"],
        redriven=redriven_at,
    )


def _check_known(ids: Sequence[str], found: Sequence[str]) -> None:
    unknown = sorted(set(ids) - set(found))
    if unknown:
        raise BadSettings(
            f"no dead letter {unknown[0]} ({len(unknown)} of {len(ids)} ids are none); "
            "`afterbay deadletter list` shows them"
        )


def _read(lake: Lake, wanted: Wanted, columns: dict[str, ds.Expression]) -> pa.Table:
    return _dataset(lake, DEADLETTER_TABLE).to_table(columns=columns, filter=_filter(wanted))


def _filter(wanted: Wanted) -> ds.Expression:
    expression = ds.scalar(True)
    if wanted.topic:
        expression &= ds.field("source_topic") == wanted.topic
    if wanted.reason:
        expression &= ds.field("reason") == wanted.reason
    if wanted.since is not None:
        expression &= ds.field("_ts") >= wanted.since
    if wanted.ids:
        expression &= ds.field("event_id").isin(list(wanted.ids))
    return expression


def _dataset(lake: Lake, table: str) -> ds.Dataset:
    return whole(lake, table, tables.open(lake, table))
