"""What `prove` works with: pinned tables as frames, and differences with their place.

In:   a lake
Out:  `Pinned` (one table at one version, with its positions), `Difference`
Never: holds text or ids of people in a difference; places are topic, partition and offset
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl
import pyarrow.dataset as ds
from deltalake import DeltaTable

from afterbay.lakehouse import tables
from afterbay.lakehouse.commits import TxnLog
from afterbay.lakehouse.files import whole
from afterbay.lakehouse.lake import Lake
from afterbay.lakehouse.positions import parse_txn_id
from afterbay.lakehouse.repair import reading
from afterbay.schemas.topics import EXPERIENCE_TABLE

PLACE = ("_topic", "_topic_id", "_partition")
KEY = ("_source", "_offset")
"""A place in the log as two integers: `_source` stands for topic, topic id and partition."""
_MS_PER_DAY = 86_400_000


@dataclass(frozen=True, slots=True)
class Difference:
    """One kind of disagreement in one table. Made by `prove`, shown to people."""

    table: str
    kind: str
    """hole, overlap, past, missing, extra, doubled, changed, moved, unknown or unfounded."""
    place: str
    """Topic, partition and offset of the first."""
    count: int
    """How many rows are in it."""
    expected: str
    """What should be there."""

    def __str__(self) -> str:
        return f"{self.table}: {self.count} {self.kind}, first at {self.place}; {self.expected}"


@dataclass(frozen=True, slots=True)
class Pinned:
    """One table at one version. Made by `pin`, read by the parts of `prove`."""

    lake: Lake
    name: str
    handle: DeltaTable
    positions: pl.DataFrame
    """`_source` and `_next` of every partition the table holds a position for."""

    def rows(self, columns: Sequence[str], where: ds.Expression | None = None) -> pl.DataFrame:
        """The asked columns of every row, in the table's order of files."""
        everything = whole(self.lake, self.name, self.handle)
        with reading(self.lake, self.name):
            found = everything.to_table(columns=list(columns), filter=where)
        return pl.DataFrame(pl.from_arrow(found))

    def placed(self, columns: Sequence[str]) -> pl.DataFrame:
        """The asked columns with PLACE, `_source` and `_offset`."""
        return with_source(self.rows([*PLACE, "_offset", *columns]))


def pin(lake: Lake, name: str) -> Pinned:
    """`name` at its newest version, with the positions of the pipeline that writes it."""
    handle = tables.open(lake, name)
    return Pinned(lake, name, handle, positions_at(lake, name, handle.version()))


def writer_of(name: str) -> str:
    """Pipeline that writes table `name`."""
    return "bucketer" if name == EXPERIENCE_TABLE else "sink"


def positions_at(lake: Lake, name: str, version: int) -> pl.DataFrame:
    """`_source` and `_next` of every partition that `name` held a position for at `version`."""
    txns = TxnLog(lake, name).advance(version)
    named = {parse_txn_id(app_id, writer_of(name)): next_of for app_id, next_of in txns.items()}
    rows = [(p.topic, p.topic_id, p.partition, v) for p, v in named.items() if p is not None]
    types = {"_topic": pl.String, "_topic_id": pl.String, "_partition": pl.Int32, "_next": pl.Int64}
    return with_source(pl.DataFrame(rows, schema=types, orient="row"))


def with_source(frame: pl.DataFrame, prefix: str = "_") -> pl.DataFrame:
    """`frame` with `<prefix>source`, one integer for topic id and partition."""
    place = pl.struct(f"{prefix}topic_id", f"{prefix}partition")
    return frame.with_columns(place.hash().alias(f"{prefix}source"))


def below(rows: pl.DataFrame, limits: pl.DataFrame, prefix: str = "_") -> pl.DataFrame:
    """Rows whose offset lies below `_next` of their source in `limits`; unknown sources are 0."""
    return _against(rows, limits, prefix).filter(
        pl.col(f"{prefix}offset") < pl.col("_next").fill_null(0)
    )


def past(rows: pl.DataFrame, limits: pl.DataFrame, prefix: str = "_") -> pl.DataFrame:
    """The other rows."""
    return _against(rows, limits, prefix).filter(
        pl.col(f"{prefix}offset") >= pl.col("_next").fill_null(0)
    )


def _against(rows: pl.DataFrame, limits: pl.DataFrame, prefix: str) -> pl.DataFrame:
    narrow = limits.select(pl.col("_source").alias(f"{prefix}source"), "_next")
    return rows.join(narrow, on=f"{prefix}source", how="left")


def found(table: str, kind: str, rows: pl.DataFrame, expected: str) -> list[Difference]:
    """The difference that `rows` are, as a list; empty if there are none."""
    if rows.is_empty():
        return []
    names = [name for name in ("_topic", "_partition", "_offset") if name in rows.columns]
    first = rows.sort(names).select(names).row(0)
    labelled = zip(names, first, strict=True)
    place = ", ".join(f"{name.removeprefix('_')} {value}" for name, value in labelled)
    return [Difference(table, kind, place, rows.height, expected)]


def id_day(column: str) -> pl.Expr:
    """Days since the epoch of a UUIDv7's own date; null if the text is none."""
    text = pl.col(column)
    digits = text.str.slice(0, 8) + text.str.slice(9, 4)
    return digits.str.to_integer(base=16, dtype=pl.Int64, strict=False) // _MS_PER_DAY


def label_day(column: str) -> pl.Expr:
    """Days since the epoch of a `YYYY-MM-DD` label; null if it is none."""
    return pl.col(column).str.to_date("%Y-%m-%d", strict=False).cast(pl.Int32).cast(pl.Int64)
