"""The offset reader: nothing is skipped, nothing comes twice, whatever happens to the files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from afterbay.lakehouse import tables
from afterbay.lakehouse.files import DataFile, dataset
from afterbay.lakehouse.lake import Lake
from afterbay.lakehouse.ledger import TableLedger
from afterbay.lakehouse.positions import SourcePartition
from afterbay.lakehouse.watermarks import OffsetReader
from tests.support.lakes import row

P0, P1 = (SourcePartition("policy.loaded.v2", "id", n) for n in range(2))


class Writer:
    """Appends rows to table `loaded`."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self.ledger = TableLedger(lake, "loaded", "sink")
        self.next: dict[SourcePartition, int] = {}

    def append(self, counts: dict[SourcePartition, int]) -> None:
        rows = [
            row(
                "loaded",
                _topic=p.topic,
                _topic_id=p.topic_id,
                _partition=p.partition,
                _offset=self.next.get(p, 0) + n,
                date="2026-03-01",
            )
            for p, count in counts.items()
            for n in range(count)
        ]
        end = {p: self.next.get(p, 0) + count for p, count in counts.items()}
        table = pa.Table.from_pylist(rows, tables.arrow_schema("loaded"))
        start = {p: self.next.get(p, 0) for p in counts}
        self.ledger.append(table, start, end)
        self.next |= end

    def compact(self) -> None:
        tables.open(self.lake, "loaded").optimize.compact()


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    lake = Lake(str(tmp_path / "lake"))
    tables.ensure(lake)
    return Writer(lake)


def reader(writer: Writer) -> OffsetReader:
    return OffsetReader(writer.lake, "loaded", "sink", ["_partition", "_offset"])


def places(rows: pa.Table) -> list[tuple[int, int]]:
    return sorted(zip(*(rows.column(n).to_pylist() for n in rows.column_names), strict=True))


def test_each_read_gives_what_came_since_the_positions(writer: Writer) -> None:
    follow = reader(writer)
    empty = follow.read({})
    assert (empty.rows.num_rows, empty.next) == (0, {})
    writer.append({P0: 2, P1: 1})
    first = follow.read(empty.next)
    assert places(first.rows) == [(0, 0), (0, 1), (1, 0)]
    assert first.next == {P0: 2, P1: 1}
    assert first.version == tables.open(writer.lake, "loaded").version()
    writer.append({P1: 2})
    assert places(follow.read(first.next).rows) == [(1, 1), (1, 2)]


def test_positions_that_lie_within_a_file_cut_it(writer: Writer) -> None:
    writer.append({P0: 4, P1: 4})
    assert places(reader(writer).read({P0: 3, P1: 4}).rows) == [(0, 3)]


def test_positions_that_go_back_are_followed(writer: Writer) -> None:
    writer.append({P0: 2})
    follow = reader(writer)
    follow.read({P0: 2})
    assert places(follow.read({P0: 1}).rows) == [(0, 1)]


def test_positions_move_with_commits_that_have_no_rows(writer: Writer) -> None:
    writer.append({P0: 1})
    writer.ledger.append(None, {P0: 1}, {P0: 7})
    assert reader(writer).read({P0: 1}).next == {P0: 7}


def test_compaction_neither_hides_nor_repeats_rows(writer: Writer) -> None:
    follow = reader(writer)
    for _ in range(3):
        writer.append({P0: 1})
    seen = follow.read({})
    writer.append({P0: 1})
    writer.compact()
    assert places(follow.read(seen.next).rows) == [(0, 3)]


def test_only_files_that_may_hold_something_new_are_opened(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    def counting(lake: Lake, table: str, files: list[DataFile]) -> object:
        opened.extend(file.path for file in files)
        return dataset(lake, table, files)

    monkeypatch.setattr("afterbay.lakehouse.watermarks.dataset", counting)
    for _ in range(3):
        writer.append({P0: 1, P1: 1})
    follow = reader(writer)
    seen = follow.read({P0: 2, P1: 2})
    assert len(opened) == 1, "statistics exclude the first two"
    follow.read(seen.next)
    assert len(opened) == 1, "nothing is new"
    writer.append({P0: 1})
    follow.read(seen.next)
    assert len(opened) == 2


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("append"), st.integers(0, 3), st.integers(0, 3)),
            st.tuples(st.just("read"), st.integers(0, 3), st.integers(0, 3)),
            st.just(("compact", 0, 0)),
            st.just(("restart", 0, 0)),
        ),
        max_size=12,
    )
)
def test_a_follower_that_takes_some_of_each_read_sees_every_row_once(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, int]]
) -> None:
    """As the rewarder does: of what a read gives, the positions take up only a part."""
    lake = Lake(str(tmp_path_factory.mktemp("lake")))
    tables.ensure(lake)
    writer = Writer(lake)
    follow, at, seen = reader(writer), {P0: 0, P1: 0}, list[tuple[int, int]]()
    for step, some, other in [*steps, ("read", 99, 99)]:
        if step == "append":
            writer.append({P0: some, P1: other})
        elif step == "compact":
            writer.compact()
        elif step == "restart":
            follow = reader(writer)
        else:
            batch = follow.read(at)
            end = {p: min(at[p] + n, batch.next.get(p, 0)) for p, n in ((P0, some), (P1, other))}
            bounds = {p.partition: v for p, v in end.items()}
            seen += [(p, o) for p, o in places(batch.rows) if o < bounds[p]]
            at = end
    assert sorted(seen) == sorted(
        (p.partition, o) for p, v in writer.next.items() for o in range(v)
    )
