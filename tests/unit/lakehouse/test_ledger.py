"""The ledger under races and failures: every offset is in the table once, whatever happens."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from afterbay.lakehouse import tables
from afterbay.lakehouse.commits import TxnLog, commit_name
from afterbay.lakehouse.lake import Lake
from afterbay.lakehouse.ledger import CommitFailed, CommitUnknown, PartitionsFenced, TableLedger
from afterbay.lakehouse.positions import Positions, SourcePartition
from afterbay.schemas.errors import AfterbayError, BadState
from tests.support.lakes import row

TABLE = "loaded"
P0, P1, P2 = (SourcePartition("policy.loaded.v2", "id", n) for n in range(3))


def rows(*spans: tuple[SourcePartition, int, int]) -> pa.Table:
    """Rows at the offsets [start, end) of each partition."""
    made = [
        row(
            TABLE,
            _topic=p.topic,
            _topic_id=p.topic_id,
            _partition=p.partition,
            _offset=offset,
            event_id=f"{p.partition}-{offset}",
            date="2026-03-01",
        )
        for p, start, end in spans
        for offset in range(start, end)
    ]
    return pa.Table.from_pylist(made, tables.arrow_schema(TABLE))


def held(lake: Lake) -> list[tuple[int, int]]:
    """(partition, offset) of every row, sorted; a doubled row shows twice."""
    found = tables.open(lake, TABLE).to_pyarrow_table(columns=["_partition", "_offset"])
    return sorted(zip(*(found.column(n).to_pylist() for n in found.column_names), strict=True))


def span(partition: SourcePartition, end: int) -> list[tuple[int, int]]:
    return [(partition.partition, offset) for offset in range(end)]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake(str(tmp_path / "lake"))
    tables.ensure(made)
    return made


class Interrupted(TableLedger):
    """A ledger that something happens to right before or right after its commit."""

    before: Callable[[], object] | None = None
    after: Callable[[], object] | None = None

    def _commit(self, handle: DeltaTable, rows: pa.Table | None, moved: Positions) -> None:
        if self.before is not None:
            self.before()
        super()._commit(handle, rows, moved)
        if self.after is not None:
            self.after()


def failing() -> None:
    raise OSError("the network went away")


def test_rows_and_positions_arrive_together(lake: Lake) -> None:
    ledger = TableLedger(lake, TABLE, "sink")
    assert ledger.next_offsets([P0, P1]) == {}
    version = ledger.append(rows((P0, 0, 3), (P1, 0, 2)), {}, {P0: 3, P1: 2})
    assert version == tables.open(lake, TABLE).version() == 1
    assert TableLedger(lake, TABLE, "sink").next_offsets([P0, P1, P2]) == {P0: 3, P1: 2}
    assert held(lake) == span(P0, 3) + span(P1, 2)


def test_positions_of_another_pipeline_are_its_own(lake: Lake) -> None:
    TableLedger(lake, TABLE, "sink").append(rows((P0, 0, 3)), {}, {P0: 3})
    assert TableLedger(lake, TABLE, "other").next_offsets([P0]) == {}


def test_an_append_without_rows_moves_positions_only(lake: Lake) -> None:
    ledger = TableLedger(lake, TABLE, "sink")
    assert ledger.append(None, {}, {P0: 5}) == 1
    assert ledger.append(rows(), {P0: 5}, {P0: 9}) == 2
    assert ledger.next_offsets([P0]) == {P0: 9}
    assert held(lake) == []


def test_an_append_that_moves_nothing_makes_no_commit(lake: Lake) -> None:
    ledger = TableLedger(lake, TABLE, "sink")
    ledger.append(None, {}, {P0: 5})
    assert ledger.append(None, {P0: 5}, {P0: 5}) == 1
    assert tables.open(lake, TABLE).version() == 1


def test_of_two_owners_that_read_the_same_version_one_is_fenced(lake: Lake) -> None:
    one, two = TableLedger(lake, TABLE, "sink"), TableLedger(lake, TABLE, "sink")
    assert one.next_offsets([P0]) == two.next_offsets([P0])
    one.append(rows((P0, 0, 3)), {}, {P0: 3})
    with pytest.raises(PartitionsFenced, match=r"policy\.loaded\.v2/0") as fenced:
        two.append(rows((P0, 0, 2)), {}, {P0: 2})
    assert fenced.value.partitions == (P0,)
    assert held(lake) == span(P0, 3)


@pytest.mark.parametrize("mine", [rows((P0, 0, 2)), None], ids=["rows", "empty"])
@pytest.mark.parametrize("theirs", [rows((P0, 0, 3)), None], ids=["rows", "empty"])
def test_an_owner_overtaken_between_check_and_commit_is_fenced(
    lake: Lake, mine: pa.Table | None, theirs: pa.Table | None
) -> None:
    two = Interrupted(lake, TABLE, "sink")
    two.before = lambda: TableLedger(lake, TABLE, "sink").append(theirs, {}, {P0: 3})
    with pytest.raises(PartitionsFenced) as fenced:
        two.append(mine, {}, {P0: 2})
    assert fenced.value.partitions == (P0,)
    assert len(held(lake)) == (0 if theirs is None else 3)


def test_an_owner_overtaken_and_compacted_away_is_fenced(lake: Lake) -> None:
    """The commit that fences is several versions back and its file was replaced."""
    stale = TableLedger(lake, TABLE, "sink")
    stale.append(rows((P0, 0, 1)), {}, {P0: 1})
    other = TableLedger(lake, TABLE, "sink")
    for offset in range(1, 6):
        other.append(rows((P0, offset, offset + 1)), {P0: offset}, {P0: offset + 1})
    handle = tables.open(lake, TABLE)
    handle.optimize.compact()
    handle.create_checkpoint()
    for log in (Path(lake.uri(TABLE)) / "_delta_log").glob("*.json"):
        if int(log.stem) < handle.version():
            log.unlink()
    with pytest.raises(PartitionsFenced):
        stale.append(rows((P0, 1, 2)), {P0: 1}, {P0: 2})
    assert held(lake) == span(P0, 6)


def test_others_commits_between_check_and_commit_do_no_harm(lake: Lake) -> None:
    two = Interrupted(lake, TABLE, "sink")

    def meanwhile() -> None:
        TableLedger(lake, TABLE, "sink").append(rows((P1, 0, 3)), {}, {P1: 3})
        tables.open(lake, TABLE).optimize.compact()

    two.before = meanwhile
    version = two.append(rows((P0, 0, 2)), {}, {P0: 2})
    assert version == tables.open(lake, TABLE).version()
    assert held(lake) == span(P0, 2) + span(P1, 3)


def test_an_owner_fenced_on_one_partition_writes_the_rest(lake: Lake) -> None:
    two = TableLedger(lake, TABLE, "sink")
    two.next_offsets([P0, P1])
    TableLedger(lake, TABLE, "sink").append(rows((P0, 0, 3)), {}, {P0: 3})
    expected, new = {P0: 0, P1: 0}, {P0: 2, P1: 4}
    with pytest.raises(PartitionsFenced) as fenced:
        two.append(rows((P0, 0, 2), (P1, 0, 4)), expected, new)
    left = {p: v for p, v in new.items() if p not in fenced.value.partitions}
    two.append(rows((P1, 0, 4)), dict.fromkeys(left, 0), left)
    assert held(lake) == span(P0, 3) + span(P1, 4)


def test_an_exception_right_after_the_commit_is_found_out_to_be_a_success(lake: Lake) -> None:
    ledger = Interrupted(lake, TABLE, "sink")
    ledger.after = failing
    assert ledger.append(rows((P0, 0, 3)), {}, {P0: 3}) == 1
    assert ledger.append(None, {P0: 3}, {P0: 4}) == 2
    assert held(lake) == span(P0, 3)


def test_an_exception_before_the_commit_may_be_retried(lake: Lake) -> None:
    ledger = Interrupted(lake, TABLE, "sink")
    ledger.before = failing
    with pytest.raises(CommitFailed, match="append again"):
        ledger.append(rows((P0, 0, 3)), {}, {P0: 3})
    assert held(lake) == []
    ledger.before = None
    ledger.append(rows((P0, 0, 3)), {}, {P0: 3})
    assert held(lake) == span(P0, 3)


def test_a_failure_that_cannot_be_looked_into_is_unknown_and_looking_later_tells(
    lake: Lake,
) -> None:
    ledger = Interrupted(lake, TABLE, "sink")
    log, away = (
        Path(lake.uri(TABLE)) / name for name in ("_delta_log/00000000000000000000.json", "x")
    )

    def cut_off() -> None:
        log.rename(away)
        failing()

    ledger.after = cut_off
    with pytest.raises(CommitUnknown, match="read its positions"):
        ledger.append(rows((P0, 0, 3)), {}, {P0: 3})
    away.rename(log)
    assert ledger.next_offsets([P0]) == {P0: 3}
    assert held(lake) == span(P0, 3)


def test_an_exception_while_another_owner_goes_on_is_a_fence(lake: Lake) -> None:
    ledger = Interrupted(lake, TABLE, "sink")

    def overtaken() -> None:
        TableLedger(lake, TABLE, "sink").append(rows((P0, 0, 5)), {}, {P0: 5})
        failing()

    ledger.before = overtaken
    with pytest.raises(PartitionsFenced):
        ledger.append(rows((P0, 0, 3)), {}, {P0: 3})
    assert held(lake) == span(P0, 5)


def test_delta_rs_still_accepts_a_sequential_repeat_so_the_check_is_needed(lake: Lake) -> None:
    """If this fails the check on the handle may go: delta-rs then fences by itself."""
    for _ in range(2):
        write_deltalake(
            tables.open(lake, TABLE),
            rows((P0, 0, 1)),
            mode="append",
            commit_properties=CommitProperties(app_transactions=[Transaction("x", 1)]),
        )
    assert held(lake) == [(0, 0), (0, 0)]


def test_ten_concurrent_writers_lose_and_double_nothing(lake: Lake) -> None:
    sources = [SourcePartition("policy.loaded.v2", "id", n) for n in range(10)]
    failures: list[BaseException] = []

    def write(source: SourcePartition) -> None:
        try:
            ledger = TableLedger(lake, TABLE, "sink")
            for offset in range(5):
                data = rows((source, offset, offset + 1))
                ledger.append(data, {source: offset}, {source: offset + 1})
        except AfterbayError as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(source,)) for source in sources]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert held(lake) == sorted(place for source in sources for place in span(source, 5))


class Owner:
    """An owner with its own beliefs, which it corrects only when it is told to look."""

    def __init__(self, lake: Lake, chance: random.Random) -> None:
        self.ledger = Interrupted(lake, TABLE, "sink")
        self.chance = chance
        self.belief: dict[SourcePartition, int] = {}

    def look(self) -> None:
        self.belief = self.ledger.next_offsets([P0, P1, P2])

    def write(self) -> None:
        """Append what this owner believes comes next, with trouble now and then."""
        owned = self.chance.sample([P0, P1, P2], self.chance.randint(1, 3))
        start = {p: self.belief.get(p, 0) for p in owned}
        end = {p: v + self.chance.randint(0, 2) for p, v in start.items()}
        trouble = self.chance.choice(["none", "none", "before", "after"])
        self.ledger.before = failing if trouble == "before" else None
        self.ledger.after = failing if trouble == "after" else None
        data = rows(*((p, start[p], end[p]) for p in owned))
        try:
            self.ledger.append(data, start, end)
        except (CommitFailed, PartitionsFenced):
            return
        self.belief |= end


@pytest.mark.parametrize("seed", range(4))
def test_owners_that_interleave_at_random_keep_every_offset_once(lake: Lake, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - a schedule, not a secret
    owners = [Owner(lake, chance) for _ in range(3)]
    for _ in range(40):
        owner = chance.choice(owners)
        chance.choice([owner.look, owner.write, owner.write])()
    ends = TableLedger(lake, TABLE, "sink").next_offsets([P0, P1, P2])
    assert held(lake) == sorted(place for p, end in ends.items() for place in span(p, end))
    assert sum(ends.values()) > 10


@pytest.mark.parametrize(("place", "survives"), [("before_commit", 0), ("after_commit", 3)])
def test_a_process_killed_around_its_commit_leaves_all_or_nothing(
    lake: Lake, tmp_path: Path, place: str, survives: int
) -> None:
    program = (
        "import os, pyarrow as pa\n"
        "from tests.unit.lakehouse import test_ledger as t\n"
        "from afterbay.schemas.faults import crash_points\n"
        "crash_points.arm(os.environ)\n"
        f"lake = t.Lake({lake.root!r})\n"
        "t.TableLedger(lake, t.TABLE, 'sink').append(t.rows((t.P0, 0, 3)), {}, {t.P0: 3})\n"
    )
    report = tmp_path / "hits"
    armed = {"AFTERBAY_CRASH_AT": f"ledger.{place}", "AFTERBAY_CRASH_REPORT": str(report)}
    died = subprocess.run([sys.executable, "-c", program], env={**os.environ, **armed}, check=False)
    assert died.returncode == -signal.SIGKILL
    assert report.read_text() == f"ledger.{place}\n"
    ledger = TableLedger(lake, TABLE, "sink")
    assert ledger.next_offsets([P0]) == ({P0: 3} if survives else {})
    assert held(lake) == span(P0, survives)
    ledger.append(rows((P0, survives, 4)), {P0: survives}, {P0: 4})
    assert held(lake) == span(P0, 4)


def test_an_append_is_on_the_disk_when_it_is_acknowledged(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[str] = []
    real = os.fsync

    def recording(handle: int) -> None:
        kept.append(os.path.relpath(os.readlink(f"/proc/self/fd/{handle}"), lake.uri(TABLE)))
        real(handle)

    monkeypatch.setattr(os, "fsync", recording)
    version = TableLedger(lake, TABLE, "sink").append(rows((P0, 0, 3)), {}, {P0: 3})
    data = [name for name in kept if name.endswith(".parquet")]
    assert len(data) == 1
    assert kept == [*data, "date=2026-03-01", ".", commit_name(version), "_delta_log"]


def test_a_disk_that_does_not_keep_a_file_is_not_acknowledged(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusing(handle: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", refusing)
    with pytest.raises(BadState, match="Input/output error"):
        TableLedger(lake, TABLE, "sink").append(rows((P0, 0, 3)), {}, {P0: 3})


@pytest.mark.parametrize("content", [b"", b'{"commitInfo":{"timest'], ids=["empty", "torn"])
def test_an_empty_or_torn_newest_commit_is_refused(lake: Lake, content: bytes) -> None:
    running = TableLedger(lake, TABLE, "sink")
    running.append(rows((P0, 0, 3)), {}, {P0: 3})
    bad = Path(lake.uri(TABLE)) / commit_name(2)
    bad.write_bytes(content)
    for look in (
        lambda: running.append(rows((P0, 3, 4)), {P0: 3}, {P0: 4}),
        lambda: TableLedger(lake, TABLE, "sink").next_offsets([P0]),
        lambda: tables.open(lake, TABLE),
    ):
        with pytest.raises(BadState, match="commit 2 is empty or torn"):
            look()
    bad.unlink()
    fresh = TableLedger(lake, TABLE, "sink")
    fresh.append(rows((P0, 3, 4)), {P0: 3}, {P0: 4})
    assert held(lake) == span(P0, 4)


def test_a_table_that_forgets_positions_is_refused(lake: Lake) -> None:
    running = TableLedger(lake, TABLE, "sink")
    running.append(rows((P0, 0, 3)), {}, {P0: 3})
    setting = {"delta.setTransactionRetentionDuration": "interval 7 days"}
    tables.open(lake, TABLE).alter.set_table_properties(setting)
    with pytest.raises(BadState, match="setTransactionRetentionDuration"):
        running.append(rows((P0, 3, 4)), {P0: 3}, {P0: 4})
    with pytest.raises(BadState, match="setTransactionRetentionDuration"):
        TableLedger(lake, TABLE, "sink").next_offsets([P0])


def without(table: pa.Table, column: str) -> pa.Table:
    return table.drop_columns([column])


def labelled(table: pa.Table, label: str | None) -> pa.Table:
    at = table.schema.get_field_index("date")
    return table.set_column(at, "date", pa.array([label] * table.num_rows, pa.string()))


@pytest.mark.parametrize(
    ("data", "expected", "new", "reason"),
    [
        (rows((P0, 2, 5)), {P0: 3}, {P0: 5}, "lie at offsets 2 to 4"),
        (rows((P0, 3, 6)), {P0: 3}, {P0: 5}, "lie at offsets 3 to 5"),
        (rows((P1, 0, 1)), {P0: 3}, {P0: 5}, r"rows of policy\.loaded\.v2/1"),
        (None, {P0: 3}, {P0: 2}, "positions only grow"),
        (without(rows((P0, 3, 5)), "node_id"), {P0: 3}, {P0: 5}, "columns node_id"),
        (labelled(rows((P0, 3, 5)), None), {P0: 3}, {P0: 5}, "has no date"),
        (labelled(rows((P0, 3, 5)), ""), {P0: 3}, {P0: 5}, "has no date"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_written(
    lake: Lake, data: pa.Table | None, expected: Any, new: Any, reason: str
) -> None:
    ledger = TableLedger(lake, TABLE, "sink")
    ledger.append(None, {}, {P0: 3})
    with pytest.raises(BadState, match=reason):
        ledger.append(data, expected, new)
    assert tables.open(lake, TABLE).version() == 1


def test_rows_of_a_file_are_sorted_by_id(lake: Lake) -> None:
    mixed = rows((P0, 0, 20)).take(pa.array(list(reversed(range(20)))))
    TableLedger(lake, TABLE, "sink").append(mixed, {}, {P0: 20})
    ids = tables.open(lake, TABLE).to_pyarrow_table().column("event_id").to_pylist()
    assert ids == sorted(ids)


def same(one: Iterable[str], log: TxnLog, table: DeltaTable) -> bool:
    return all(log.txns[app_id] == table.transaction_version(app_id) for app_id in one)


def test_positions_read_from_the_log_are_those_that_delta_rs_reads(lake: Lake) -> None:
    ledger = TableLedger(lake, TABLE, "sink")
    log = TxnLog(lake, TABLE)
    names = [p.txn_id("sink") for p in (P0, P1)]
    for turn in range(1, 7):
        ledger.append(None, {P0: turn - 1, P1: turn - 1}, {P0: turn, P1: turn})
        handle = tables.open(lake, TABLE)
        log.advance(handle.version())
        assert same(names, log, handle)
        if turn == 3:
            handle.create_checkpoint()
            fresh = TxnLog(lake, TABLE)
            fresh.advance(handle.version())
            assert fresh.txns == log.txns


def test_a_torn_checkpoint_is_refused_by_name(lake: Lake) -> None:
    TableLedger(lake, TABLE, "sink").append(None, {}, {P0: 1})
    handle = tables.open(lake, TABLE)
    handle.create_checkpoint()
    found = next((Path(lake.uri(TABLE)) / "_delta_log").glob("*.checkpoint.parquet"))
    found.write_bytes(found.read_bytes()[:100])
    with pytest.raises(BadState, match=r"checkpoint 0*1"):
        TxnLog(lake, TABLE).advance(handle.version())
