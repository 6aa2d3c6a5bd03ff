"""Rows for a small real lake: every column filled, the ones a test is about given."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from afterbay.lakehouse import tables
from afterbay.lakehouse.lake import Lake
from afterbay.lakehouse.ledger import TableLedger
from afterbay.lakehouse.positions import SourcePartition

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def blank(kind: pa.DataType) -> Any:
    if pa.types.is_list(kind):
        return []
    if pa.types.is_struct(kind):
        return {f.name: blank(f.type) for f in kind}
    if pa.types.is_string(kind):
        return "x"
    if pa.types.is_timestamp(kind):
        return NOON
    return kind.to_pandas_dtype()(0).item() if not pa.types.is_boolean(kind) else False


def row(table: str, **values: Any) -> dict[str, Any]:
    schema = tables.arrow_schema(table)
    return {f.name: values.get(f.name, blank(f.type)) for f in schema}


@dataclass
class Log:
    """Stands in for the sink: puts events of one topic partition into its table, in order."""

    lake: Lake
    topic: str
    table: str
    partition: int = 0
    next: int = 0

    @property
    def source(self) -> SourcePartition:
        """Where the events seem to have been read from."""
        return SourcePartition(self.topic, f"id-{self.table}", self.partition)

    def put(self, *events: dict[str, Any], ts: datetime = NOON) -> None:
        """Append events (column -> value) in one commit; ids give the date."""
        rows = [
            row(
                self.table,
                **{"date": "2026-03-01", **event},
                _topic=self.topic,
                _topic_id=self.source.topic_id,
                _partition=self.partition,
                _offset=self.next + n,
                _ts=ts,
            )
            for n, event in enumerate(events)
        ]
        start, self.next = self.next, self.next + len(events)
        data = pa.Table.from_pylist(rows, tables.arrow_schema(self.table))
        ledger = TableLedger(self.lake, self.table, "sink")
        ledger.append(data, {self.source: start}, {self.source: self.next})
