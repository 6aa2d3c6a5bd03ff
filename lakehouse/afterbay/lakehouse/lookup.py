"""Rows of a table by inference id, opening only the days and files that can hold them.

In:   ids (UUIDv7, so each tells its date), a table partitioned by that date, a pinned version
Out:  the rows whose id is among them, with the asked columns
Never: reads a file whose statistics exclude every id asked for
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.dataset as ds

from afterbay.lakehouse import tables
from afterbay.lakehouse.files import whole
from afterbay.lakehouse.lake import Lake
from afterbay.lakehouse.repair import reading
from afterbay.schemas.ids import date_label


def id_column(table: str) -> str:
    """Column of `table` that holds the inference's id."""
    return "event_id" if table == "inference" else "inference_id"


def rows_by_id(
    lake: Lake, table: str, ids: pa.ChunkedArray | pa.Array, columns: Sequence[str], version: int
) -> pa.Table:
    """Rows of `table` at `version` whose inference id is in `ids` (strings, repeats allowed)."""
    wanted = ids.unique()
    handle = tables.open(lake, table, version)
    dataset = whole(lake, table, handle)
    if len(wanted) == 0:
        return dataset.schema.empty_table().select(list(columns))
    with reading(lake, table):
        return dataset.to_table(columns=list(columns), filter=_among(id_column(table), wanted))


def _among(column: str, wanted: pa.Array) -> ds.Expression:
    texts = sorted(wanted.to_pylist())
    dates = sorted({label for label in map(date_label, texts) if label is not None})
    field = ds.field(column)
    # the bounds prune files by their statistics; `isin` alone does not
    within = (field >= texts[0]) & (field <= texts[-1])
    return ds.field("date").isin(dates) & within & field.isin(wanted)
