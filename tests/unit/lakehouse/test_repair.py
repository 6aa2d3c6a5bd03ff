"""A table goes back to a version with its positions; a lost file is named with the way back."""

from __future__ import annotations

from pathlib import Path

import pytest

from afterbay.lakehouse import tables
from afterbay.lakehouse.commits import read_commit
from afterbay.lakehouse.lake import Lake
from afterbay.lakehouse.ledger import PartitionsFenced, TableLedger
from afterbay.lakehouse.repair import restore
from afterbay.lakehouse.watermarks import OffsetReader
from afterbay.schemas.errors import BadState
from tests.support.lakes import Log


@pytest.fixture
def log(tmp_path: Path) -> Log:
    lake = Lake(str(tmp_path))
    tables.ensure(lake)
    log = Log(lake, "policy.loaded.v2", "loaded")
    for _ in range(3):
        log.put({})
    return log


def offsets(log: Log) -> list[int]:
    found = tables.open(log.lake, "loaded").to_pyarrow_table(columns=["_offset"])
    return sorted(found.column("_offset").to_pylist())


def test_rows_and_positions_go_back_together(log: Log) -> None:
    now = restore(log.lake, "loaded", 2)
    assert now == tables.open(log.lake, "loaded").version() == 4
    assert offsets(log) == [0, 1]
    assert TableLedger(log.lake, "loaded", "sink").next_offsets([log.source]) == {log.source: 2}


def test_an_owner_that_knows_the_later_position_is_fenced(log: Log) -> None:
    restore(log.lake, "loaded", 1)
    with pytest.raises(PartitionsFenced):
        TableLedger(log.lake, "loaded", "sink").append(None, {log.source: 3}, {log.source: 4})


def test_a_position_that_is_younger_than_the_version_counts_as_never_read(log: Log) -> None:
    restore(log.lake, "loaded", 0)
    assert offsets(log) == []
    assert TableLedger(log.lake, "loaded", "sink").next_offsets([log.source]) == {log.source: 0}


def test_a_version_that_is_not_there_is_refused(log: Log) -> None:
    with pytest.raises(BadState, match="no version 9; it has 0 to 3"):
        restore(log.lake, "loaded", 9)


def test_a_lost_file_is_named_with_the_version_to_go_back_to(log: Log) -> None:
    commit = read_commit(log.lake, "loaded", 2)
    assert commit is not None
    Path(log.lake.uri("loaded"), commit.added[0]).unlink()
    reader = OffsetReader(log.lake, "loaded", "sink", ["event_id", "_offset"])
    with pytest.raises(BadState, match=r"1 data files are missing.*afterbay restore loaded 1`"):
        reader.read({})
    restore(log.lake, "loaded", 1)
    assert reader.read({}).rows.num_rows == 1
