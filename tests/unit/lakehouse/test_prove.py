"""`prove` agrees with a lake made by hand, and finds one row deleted, doubled or moved anywhere."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import write_deltalake

from afterbay.lakehouse import tables
from afterbay.lakehouse.archive import GAP
from afterbay.lakehouse.lake import Lake
from afterbay.lakehouse.prove import prove
from afterbay.schemas.errors import BadSettings
from tests.support.whole_lake import FEEDBACK, INFERENCES, WholeLake, filled

Mutation = Callable[[pa.Table, int], pa.Table]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound")
    filled(Lake(str(folder)))
    return folder


@pytest.fixture
def lake(sound: Path, tmp_path: Path) -> Lake:
    shutil.copytree(sound, tmp_path / "lake")
    return Lake(str(tmp_path / "lake"))


def mutate(lake: Lake, table: str, change: Mutation, index: int) -> None:
    """Rewrite `table` with one row changed; its positions stay, as after a careless repair."""
    handle = tables.open(lake, table)
    rows = handle.to_pyarrow_table().select(tables.arrow_schema(table).names)
    write_deltalake(handle, change(rows, index), mode="overwrite")


def deleted(rows: pa.Table, index: int) -> pa.Table:
    return pa.concat_tables([rows.slice(0, index), rows.slice(index + 1)])


def doubled(rows: pa.Table, index: int) -> pa.Table:
    return pa.concat_tables([rows, rows.slice(index, 1)])


def changed(rows: pa.Table, index: int, column: str, value: object) -> pa.Table:
    values = rows.column(column).to_pylist()
    values[index] = value
    at = rows.schema.get_field_index(column)
    return rows.set_column(at, rows.schema.field(at), pa.array(values, rows.schema.field(at).type))


def redated(rows: pa.Table, index: int) -> pa.Table:
    return changed(rows, index, "date", "2026-02-27")


def shifted(rows: pa.Table, index: int) -> pa.Table:
    """Moved to another offset, past the others of its partition."""
    column = "_offset" if "_offset" in rows.column_names else "reward_offset"
    return changed(rows, index, column, rows.column(column)[index].as_py() + 1)


def reassigned(rows: pa.Table, index: int) -> pa.Table:
    """Moved to another partition of the log."""
    column = "_partition" if "_partition" in rows.column_names else "reward_partition"
    return changed(rows, index, column, rows.column(column)[index].as_py() + 1)


def test_a_sound_lake_has_no_difference_and_every_row_is_looked_at(sound: Path) -> None:
    proof = prove(Lake(str(sound)))
    assert proof.differences == ()
    assert proof.ok
    assert set(proof.behind.values()) == {0}
    assert all(proof.counts[name] >= 3 for name in tables.NAMES)


@pytest.mark.parametrize("change", [deleted, doubled, redated, shifted, reassigned])
@pytest.mark.parametrize("table", tables.NAMES)
def test_one_row_deleted_doubled_or_moved_is_found(
    lake: Lake, table: str, change: Mutation
) -> None:
    last = tables.open(lake, table).count() - 1
    for index in sorted({0, last // 2}):
        before = tables.open(lake, table)
        mutate(lake, table, change, index)
        proof = prove(lake, [table])
        assert not proof.ok, f"{change.__name__} row {index}"
        assert proof.differences[0].table == table
        tables.open(lake, table).restore(before.version())
    assert prove(lake, [table]).ok


def test_an_experience_moved_to_another_range_is_found(lake: Lake) -> None:
    rows = tables.open(lake, "experience").to_pyarrow_table()
    other = "low" if rows.column("reward_range")[0].as_py() != "low" else "high"
    mutate(lake, "experience", lambda r, i: changed(r, i, "reward_range", other), 0)
    assert [d.kind for d in prove(lake, ["experience"]).differences] == ["moved"]


@pytest.mark.parametrize(
    ("column", "value"), [("reward", 0.11), ("prompt_ids", [1]), ("session_id", "other")]
)
def test_an_experience_that_says_something_else_is_found(
    lake: Lake, column: str, value: object
) -> None:
    mutate(lake, "experience", lambda r, i: changed(r, i, column, value), 0)
    kinds = {d.kind for d in prove(lake, ["experience"]).differences}
    assert "changed" in kinds


def test_an_event_id_that_differs_from_the_archived_one_is_found(lake: Lake) -> None:
    new_id = "019ca8c0-0000-7000-8000-000000000000"
    mutate(lake, "access", lambda r, i: changed(r, i, "event_id", new_id), 0)
    assert "changed" in {d.kind for d in prove(lake, ["access"]).differences}


def test_a_reward_without_its_feedback_is_found(lake: Lake) -> None:
    rewards = tables.open(lake, "reward").to_pyarrow_table()
    named = pc.list_flatten(rewards.column("feedback_ids"))[0].as_py()
    rows = tables.open(lake, "feedback").to_pyarrow_table()
    mutate(lake, "feedback", deleted, rows.column("event_id").to_pylist().index(named))
    assert [d.kind for d in prove(lake, ["reward"]).differences] == ["unfounded"]


def test_a_lost_gap_row_is_found(lake: Lake) -> None:
    rows = tables.open(lake, "archive").to_pyarrow_table()
    index = rows.column("_kind").to_pylist().index(GAP)
    mutate(lake, "archive", deleted, index)
    assert {d.kind for d in prove(lake, ["archive"]).differences} == {"hole"}


def test_a_difference_names_its_place(lake: Lake) -> None:
    rows = tables.open(lake, "feedback").to_pyarrow_table().sort_by("_offset")
    offset = rows.column("_offset")[0].as_py()
    handle = tables.open(lake, "feedback")
    handle.delete(f"_offset = {offset}")
    found = prove(lake, ["feedback"]).differences
    assert str(found[0]) == (
        f"feedback: 1 missing, first at topic {FEEDBACK}, partition 0, offset {offset}; "
        "every archived event"
    )


def test_a_table_that_is_only_behind_is_sound(tmp_path: Path) -> None:
    whole = WholeLake(Lake(str(tmp_path / "other")))
    whole.send(INFERENCES)
    whole.flush()
    whole.send(INFERENCES)
    whole.archive_only()
    proof = prove(whole.lake)
    assert proof.ok
    assert proof.behind["inference"] == 1


def test_an_unknown_table_is_refused_with_the_known_ones(sound: Path) -> None:
    with pytest.raises(BadSettings, match="known tables: inference"):
        prove(Lake(str(sound)), ["inferences"])
