"""Do both tables say the same? Rows, and every text after masking.

In:   our table and Spark's, made from one topic
Out:  how many rows were compared and how many of them hold a mask; an error with an event's id
      (no text) if they differ

Spark masks cards and resident ids as one kind, so ours are renamed before they are compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl
from deltalake import DeltaTable

TEXTS = ("prompt", "response")


@dataclass(frozen=True, slots=True)
class Compared:
    """Outcome. Made by `compare`."""

    rows: int
    masked: int
    """Rows in which a value was masked, by both in the same place."""


def compare(ours: Path, theirs: Path, rows: int) -> Compared:
    """RuntimeError unless both hold `rows` events, each once, with the same texts."""
    one, other = _read(ours), _read(theirs)
    for name, table in (("ours", one), ("Spark's", other)):
        if table.height != rows or table["event_id"].n_unique() != rows:
            raise RuntimeError(f"{name} holds {table.height} rows, the topic {rows}")
    both = one.join(other, on="event_id", suffix="_theirs")
    same = pl.all_horizontal(pl.col(name) == pl.col(f"{name}_theirs") for name in TEXTS)
    different = both.filter(~same)
    if both.height != rows or different.height:
        first = different["event_id"].head(1).to_list()
        raise RuntimeError(f"{different.height} rows are masked differently, first {first}")
    masked = both.filter(pl.col("prompt").str.contains(r"\[(email|number|phone)\]"))
    return Compared(rows, masked.height)


def _read(table: Path) -> pl.DataFrame:
    dataset = DeltaTable(str(table)).to_pyarrow_dataset()
    found = pl.DataFrame(pl.from_arrow(dataset.to_table(columns=["event_id", *TEXTS])))
    number = r"\[(bank_card|cn_resident_id)\]"
    return found.with_columns(pl.col(name).str.replace_all(number, "[number]") for name in TEXTS)
