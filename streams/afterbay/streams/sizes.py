"""How many bytes Avro takes for each row of a decoded batch: the check that nothing was left over.

In:   a record batch and the Avro schema it was decoded with
Out:  bytes of each row in Avro's plain encoding (one block an array), as every writer of ours makes
Refuses: types that hot schemas do not use, with TypeError
Never: looks at a payload; lengths and numbers only

A row that was written in another legal way (several blocks, block sizes) comes out shorter than it
is; whoever compares then asks the exact reader.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Sizes = NDArray[np.int64]

_FIXED = {"boolean": 1, "float": 4, "double": 8}
_THRESHOLDS = np.array([1 << 7 * k for k in range(1, 10)], dtype=np.uint64)


def encoded_sizes(batch: pa.RecordBatch, schema: dict[str, Any]) -> Sizes:
    """Bytes (n,) of each of the n rows in Avro; `schema` is the record's schema as JSON."""
    sizes = np.zeros(batch.num_rows, dtype=np.int64)
    for field, column in zip(schema["fields"], batch.columns, strict=True):
        sizes += _sizes(field["type"], column)
    return sizes


def _sizes(avro: Any, column: pa.Array) -> Sizes:
    if isinstance(avro, list):
        return _of_union(avro, column)
    if isinstance(avro, dict):
        return _of_nested(avro, column)
    if avro in _FIXED:
        return np.full(len(column), _FIXED[avro], dtype=np.int64)
    if avro in ("int", "long"):
        return _of_numbers(_numbers(column))
    if avro == "string":
        lengths = _numbers(pc.binary_length(column))
        return _of_numbers(lengths) + lengths
    raise TypeError(f"no columnar size of Avro type {avro!r}; hot schemas keep to a few types")


def _of_union(avro: list[Any], column: pa.Array) -> Sizes:
    (kind,) = [branch for branch in avro if branch != "null"]
    present = column.is_valid().to_numpy(zero_copy_only=False)
    return 1 + np.where(present, _sizes(kind, column), 0)


def _of_nested(avro: dict[str, Any], column: pa.Array) -> Sizes:
    if avro["type"] == "record":
        fields = enumerate(avro["fields"])
        return sum(
            (_sizes(field["type"], column.field(i)) for i, field in fields),
            start=np.zeros(len(column), dtype=np.int64),
        )
    if avro["type"] == "array":
        return _of_array(avro["items"], column)
    return _sizes(avro["type"], column)


def _of_array(items: Any, column: pa.Array) -> Sizes:
    inner = np.concatenate(([0], np.cumsum(_sizes(items, column.values))))
    offsets = column.offsets.to_numpy()
    counts = np.diff(offsets)
    content = inner[offsets[1:]] - inner[offsets[:-1]]
    # one block and its end; an empty array is its end alone
    return np.where(counts > 0, _of_numbers(counts) + content, 0) + 1


def _numbers(column: pa.Array) -> NDArray[np.int64]:
    plain: NDArray[np.int64] = pc.fill_null(column.cast(pa.int64()), 0).to_numpy()
    return plain


def _of_numbers(values: NDArray[np.int64]) -> Sizes:
    wide = values.astype(np.int64)
    zigzag = ((wide << 1) ^ (wide >> 63)).view(np.uint64)
    return np.searchsorted(_THRESHOLDS, zigzag, side="right").astype(np.int64) + 1
