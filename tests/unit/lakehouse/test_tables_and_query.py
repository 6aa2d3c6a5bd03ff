"""Tables are made once and grow with the schemas; queries see pinned versions and nothing else."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from afterbay.lakehouse import query, tables
from afterbay.lakehouse.lake import Lake
from afterbay.lakehouse.ledger import TableLedger
from afterbay.lakehouse.positions import SourcePartition
from afterbay.schemas.errors import BadState
from afterbay.schemas.topics import TABLES
from tests.support.lakes import row

SOURCE = SourcePartition("audit.access.v2", "id", 0)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake(str(tmp_path / "lake"))
    tables.ensure(made)
    return made


def access(lake: Lake, offset: int) -> None:
    place = {"_topic": SOURCE.topic, "_topic_id": "id", "_partition": 0, "_offset": offset}
    rows = [row("access", date="2026-03-01", actor="a'b", **place)]
    table = pa.Table.from_pylist(rows, tables.arrow_schema("access"))
    TableLedger(lake, "access", "sink").append(table, {SOURCE: offset}, {SOURCE: offset + 1})


def test_every_topic_but_the_cursor_has_a_table() -> None:
    assert set(tables.NAMES) == {*TABLES.values(), "experience", "archive"}
    assert "cursor.v2" not in TABLES


@pytest.mark.parametrize("table", tables.NAMES)
def test_a_table_has_the_columns_it_says_and_its_partitions(lake: Lake, table: str) -> None:
    handle = tables.open(lake, table)
    schema = pa.schema(handle.schema().to_arrow())
    wanted = tables.arrow_schema(table)
    assert schema.names == wanted.names
    assert all(schema.field(f.name).type.equals(f.type) for f in wanted)
    assert tuple(handle.metadata().partition_columns) == tables.partition_columns(table)


def test_making_tables_again_changes_nothing(lake: Lake) -> None:
    access(lake, 0)
    tables.ensure(lake)
    assert [tables.open(lake, name).version() for name in ("access", "inference")] == [1, 0]


def test_writer_schemas_lie_beside_the_archive(lake: Lake) -> None:
    assert lake.list("archive", "_schemas/inference.completed.v2") == ["1.avsc"]


def test_experience_holds_no_text(lake: Lake) -> None:
    assert not {"prompt", "response", "pii", "tool_calls"} & set(
        tables.arrow_schema("experience").names
    )


def test_a_column_that_a_schema_has_gained_is_added_and_positions_stay(lake: Lake) -> None:
    old = tables.arrow_schema("access")
    less = pa.schema([field for field in old if field.name != "reason"])
    other = Lake(lake.root + "-old")
    DeltaTable.create(other.uri("access"), less, partition_by=["date"])
    tables.ensure(other)
    assert "reason" in {f.name for f in tables.open(other, "access").schema().fields}
    access(other, 0)
    assert tables.open(other, "access").count() == 1


def test_a_column_of_another_type_is_refused(tmp_path: Path) -> None:
    other = Lake(str(tmp_path))
    schema = pa.schema([("event_id", pa.int64()), ("date", pa.string())])
    DeltaTable.create(other.uri("access"), schema, partition_by=["date"])
    with pytest.raises(BadState, match="column event_id is int64, string expected"):
        tables.ensure(other)


def test_a_missing_table_is_explained(tmp_path: Path) -> None:
    with pytest.raises(BadState, match="afterbay up"):
        tables.open(Lake(str(tmp_path)), "access")


def test_an_unknown_table_is_refused_with_the_known_ones() -> None:
    with pytest.raises(KeyError, match="known tables: inference"):
        tables.arrow_schema("inferences")


def test_a_query_sees_the_version_it_was_pinned_at(lake: Lake) -> None:
    access(lake, 0)
    before = query.connect(lake)
    access(lake, 1)
    count = "SELECT count(*) FROM access WHERE date = '2026-03-01' AND actor = 'a''b'"
    assert before.sql(count).fetchall() == [(1,)]
    assert query.connect(lake).sql(count).fetchall() == [(2,)]
    assert query.connect(lake, {"access": 0}).sql(count).fetchall() == [(0,)]


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM read_text('/etc/hostname')",
        "COPY (SELECT 1) TO 'out.csv'",
        "INSTALL httpfs",
        "SET enable_external_access = true",
        "ATTACH 'other.db'",
        "SELECT * FROM lake",  # a Python variable of the caller
    ],
)
def test_a_query_reaches_nothing_but_the_tables(lake: Lake, statement: str) -> None:
    with pytest.raises(duckdb.Error):
        query.connect(lake).execute(statement)
