"""What the demo asks of the tables, asked through the real command over a lake that is there."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from afterbay.lakehouse.lake import Lake
from afterbay.platform.demo import stored
from afterbay.platform.demo.commands import Afterbay
from afterbay.platform.demo.stored import Accepted
from afterbay.schemas.topics import TABLES
from tests.support.whole_lake import WholeLake, filled

T = TypeVar("T")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> WholeLake:
    return filled(Lake(str(tmp_path_factory.mktemp("home") / "lake")))


@pytest.fixture(scope="module")
def afterbay(whole: WholeLake) -> Afterbay:
    return Afterbay({"AFTERBAY_HOME": str(Path(whole.lake.root).parent)})


@pytest.fixture(scope="module")
def accepted(whole: WholeLake) -> Accepted:
    def ids_of(table: str) -> set[str]:
        return {row["event_id"] for row in whole.rows[table]}

    return Accepted(
        inference=ids_of("inference"),
        feedback=ids_of("feedback"),
        since_id=min(ids_of("inference") | ids_of("feedback") | ids_of("policy")),
        since=datetime(2020, 1, 1, tzinfo=UTC),
    )


def _do(asked: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asked)


def test_every_topic_is_counted_and_all_that_was_accepted_is_found(
    afterbay: Afterbay, accepted: Accepted
) -> None:
    counted = _do(stored.counts(afterbay))
    events = _do(stored.events(afterbay, accepted, counted))
    assert events.keys() == TABLES.keys()
    assert [name for name, count in events.items() if count.sent != count.found] == []
    assert events["inference.completed.v2"].sent == len(accepted.inference) > 0


def test_an_accepted_id_that_no_table_holds_is_missing(
    afterbay: Afterbay, accepted: Accepted
) -> None:
    more = accepted.inference | {"f0000000-0000-7000-8000-000000000000"}
    changed = Accepted(
        inference=more,
        feedback=accepted.feedback,
        since_id=accepted.since_id,
        since=accepted.since,
    )
    counted = _do(stored.counts(afterbay))
    count = _do(stored.events(afterbay, changed, counted))["inference.completed.v2"]
    assert (count.sent, count.found) == (len(more), len(more) - 1)
    assert not _do(stored.wait_until_stored(afterbay, changed, 0.0))
    assert _do(stored.wait_until_stored(afterbay, accepted, 0.0))


def test_rows_are_counted_and_none_is_doubled(afterbay: Afterbay, whole: WholeLake) -> None:
    counted = _do(stored.counts(afterbay))
    assert counted.doubled == 0
    assert counted.tables["feedback"] == len(whole.rows["feedback"])
    assert counted.archived["feedback.received.v2"] == len(whole.rows["feedback"])


def test_series_count_every_experience_once(afterbay: Afterbay, accepted: Accepted) -> None:
    rewards, ranges = _do(stored.experience(afterbay, accepted))
    sql = "select count(*) as n from experience_current"
    experiences = _do(afterbay.query(sql))[0]["n"]
    assert sum(p.n for p in rewards) == sum(p.n for p in ranges) == experiences > 0
    assert all(0 <= p.mean <= 1 for p in rewards)
    assert {p.reward_range for p in ranges} <= {"low", "mid", "high"}


def test_snapshots_are_told_in_order(
    afterbay: Afterbay, accepted: Accepted, whole: WholeLake
) -> None:
    steps = _do(stored.steps(afterbay, accepted))
    assert len(steps) == len(whole.rows["policy"])
    assert [s.at_s for s in steps] == sorted(s.at_s for s in steps)
    assert msgspec.json.encode(steps)
    assert _do(stored.loaded(afterbay, accepted)) == 0  # each of this lake's tells of an error
