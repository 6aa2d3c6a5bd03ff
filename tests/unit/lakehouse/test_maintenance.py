"""Maintenance rewrites files and logs; rows, positions and fencing stay as they were."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from afterbay.lakehouse import tables
from afterbay.lakehouse.commits import TxnLog
from afterbay.lakehouse.lake import Lake
from afterbay.lakehouse.ledger import TableLedger
from afterbay.lakehouse.maintenance import MaintenanceSettings, lease, maintain
from afterbay.lakehouse.positions import SourcePartition
from afterbay.schemas.errors import Fenced

SOURCE = SourcePartition("policy.loaded.v2", "id", 0)
EAGER = MaintenanceSettings(checkpoint_commits=5, small_files=4)


def loaded(offset: int) -> pa.Table:
    values: dict[str, Any] = {
        "event_id": f"e{offset}",
        "_topic": SOURCE.topic,
        "_topic_id": SOURCE.topic_id,
        "_partition": 0,
        "_offset": offset,
        "date": "2026-03-01",
    }
    schema = tables.arrow_schema("loaded")
    return pa.Table.from_pylist([{f.name: values.get(f.name) for f in schema}], schema)


def append(ledger: TableLedger, first: int, count: int) -> None:
    for offset in range(first, first + count):
        ledger.append(loaded(offset), {SOURCE: offset}, {SOURCE: offset + 1})


def offsets(lake: Lake) -> list[int]:
    table = tables.open(lake, "loaded").to_pyarrow_table(columns=["_offset"])
    return sorted(table.column("_offset").to_pylist())


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake(str(tmp_path))
    tables.ensure(made)
    return made


def test_many_small_files_become_one_and_rows_and_positions_stay(lake: Lake) -> None:
    ledger = TableLedger(lake, "loaded", "sink")
    append(ledger, 0, 7)
    done = maintain(lake, "loaded", EAGER)
    assert (done.files_before, done.files_after) == (7, 1)
    assert offsets(lake) == list(range(7))
    assert ledger.next_offsets([SOURCE]) == {SOURCE: 7}
    append(ledger, 7, 1)
    assert offsets(lake) == list(range(8))


def test_positions_are_read_from_the_checkpoint_when_old_commits_are_gone(lake: Lake) -> None:
    append(TableLedger(lake, "loaded", "sink"), 0, 7)
    version = maintain(lake, "loaded", EAGER).checkpoint
    assert version is not None
    for log in (Path(lake.uri("loaded")) / "_delta_log").glob("*.json"):
        if int(log.stem) < version:
            log.unlink()
    assert TxnLog(lake, "loaded").advance(version)[SOURCE.txn_id("sink")] == 7
    append(TableLedger(lake, "loaded", "sink"), 7, 1)
    assert offsets(lake) == list(range(8))


def test_no_checkpoint_before_its_time(lake: Lake) -> None:
    append(TableLedger(lake, "loaded", "sink"), 0, 2)
    assert maintain(lake, "loaded", EAGER).checkpoint is None


def test_a_writer_goes_on_while_its_table_is_maintained(lake: Lake) -> None:
    writer = threading.Thread(target=append, args=(TableLedger(lake, "loaded", "sink"), 0, 60))
    writer.start()
    replaced = 0
    while writer.is_alive():
        replaced += maintain(lake, "loaded", EAGER).files_before
    writer.join()
    assert replaced > 0
    assert offsets(lake) == list(range(60))


def test_a_second_maintainer_is_refused_and_told_who_holds_the_lease(lake: Lake) -> None:
    with lease(lake), pytest.raises(Fenced, match=r"process \d+ maintains it"), lease(lake):
        pass
    with lease(lake):
        pass
