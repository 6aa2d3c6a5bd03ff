"""The two sensors, called on a small real lake: when they ask for a run, and why not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import dagster as dg
import pytest

from afterbay.dagster_defs.definitions import defs
from afterbay.dagster_defs.promotion import CANARY_TAG
from afterbay.dagster_defs.training import SNAPSHOT_TAG
from afterbay.dagster_defs.triggers import MOST_JUDGEMENTS, canary, experience
from tests.support.small_loop import SmallLoop


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


@pytest.fixture
def loop(tmp_path: Path) -> SmallLoop:
    return SmallLoop.at(tmp_path, train_every=20, gate_ess=1.0, canary_rewards=5, canary_s=20)


def look(
    sensor: dg.SensorDefinition, loop: SmallLoop, instance: dg.DagsterInstance, cursor: str | None
) -> Any:
    with dg.build_sensor_context(
        instance=instance,
        cursor=cursor,
        resources={"installation": loop.installation},
        definitions=defs,
    ) as context:
        return sensor.evaluate_tick(context)


def why(tick: Any) -> str:
    assert not tick.run_requests
    return str(tick.skip_message)


def put_run(instance: dg.DagsterInstance, job: str, status: str, **tags: str) -> None:
    run = dg.DagsterRun(
        job_name=job, run_id=str(uuid4()), status=dg.DagsterRunStatus(status), tags=tags
    )
    instance.add_run(run)


def test_a_training_starts_with_enough_experience_of_today(
    loop: SmallLoop, instance: dg.DagsterInstance
) -> None:
    loop.tell("published a", "promoted a")
    loop.rewarded([0.5] * 60)
    tick = look(experience, loop, instance, None)
    assert [request.partition_key for request in tick.run_requests] == ["2026-03-01"]
    assert "0 of 20" in why(look(experience, loop, instance, tick.cursor))


def test_the_cursor_counts_rows_from_the_last_request(
    loop: SmallLoop, instance: dg.DagsterInstance
) -> None:
    loop.tell("promoted a")
    loop.rewarded([0.5] * 60)
    cursor = look(experience, loop, instance, None).cursor
    loop.rewarded([0.5] * 19)
    tick = look(experience, loop, instance, cursor)
    assert "19 of 20" in why(tick)
    assert tick.cursor == cursor
    loop.rewarded([0.5])
    assert len(look(experience, loop, instance, cursor).run_requests) == 1


def test_an_empty_lake_starts_nothing(loop: SmallLoop, instance: dg.DagsterInstance) -> None:
    assert "0 of 20" in why(look(experience, loop, instance, None))
    assert "no canary" in why(look(canary, loop, instance, None))


def test_without_a_promoted_policy_nothing_is_trained(
    loop: SmallLoop, instance: dg.DagsterInstance
) -> None:
    loop.tell("published a")
    loop.rewarded([0.5] * 60)
    assert "no policy was promoted" in why(look(experience, loop, instance, None))


@pytest.mark.parametrize("status", ["STARTING", "STARTED", "CANCELING"])
def test_one_training_at_a_time(loop: SmallLoop, instance: dg.DagsterInstance, status: str) -> None:
    loop.tell("promoted a")
    loop.rewarded([0.5] * 60)
    put_run(instance, "train", status)
    assert "under way" in why(look(experience, loop, instance, None))


@pytest.mark.parametrize("status", ["SUCCESS", "FAILURE", "CANCELED"])
def test_a_run_that_ended_stands_in_nobodys_way(
    loop: SmallLoop, instance: dg.DagsterInstance, status: str
) -> None:
    loop.tell("promoted a")
    loop.rewarded([0.5] * 60)
    put_run(instance, "train", status)
    put_run(instance, "promote", "STARTED")
    assert look(experience, loop, instance, None).run_requests


def test_no_training_while_a_canary_is_judged(
    loop: SmallLoop, instance: dg.DagsterInstance
) -> None:
    loop.tell("promoted a", "published b", "canary b")
    loop.rewarded([0.5] * 60)
    assert "canary of snapshot b" in why(look(experience, loop, instance, None))
    loop.tell("rolled_back b")
    assert look(experience, loop, instance, None).run_requests


def test_no_training_before_the_tables_know_the_last_ones_snapshot(
    loop: SmallLoop, instance: dg.DagsterInstance
) -> None:
    loop.tell("promoted a")
    loop.rewarded([0.5] * 60)
    put_run(instance, "train", "SUCCESS", **{SNAPSHOT_TAG: "b"})
    assert "not in table" in why(look(experience, loop, instance, None))
    loop.tell("published b", "canary b", "promoted b")
    assert look(experience, loop, instance, None).run_requests


def test_no_training_whose_gate_could_not_pass(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    loop = SmallLoop.at(tmp_path, train_every=20, gate_ess=50.0)
    loop.tell("promoted a")
    loop.rewarded([0.5] * 60)
    assert "of 100 held-out" in why(look(experience, loop, instance, None))
    loop.rewarded([0.5] * 1_500)
    tick = look(experience, loop, instance, None)
    assert tick.run_requests
    assert '"evidence":true' in tick.cursor


def test_without_a_gate_no_held_out_experience_is_asked(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    loop = SmallLoop.at(tmp_path, train_every=20, gate=False)
    loop.tell("promoted a")
    loop.rewarded([0.5] * 20)
    assert look(experience, loop, instance, None).run_requests


def canarying(loop: SmallLoop) -> None:
    loop.tell("promoted a", "published b", "canary b")
    loop.clock.advance(1)


def test_a_canary_is_judged_after_enough_candidate_rewards(
    loop: SmallLoop, instance: dg.DagsterInstance
) -> None:
    canarying(loop)
    loop.rewarded([0.5] * 9)
    loop.rewarded([0.5] * 4, arm="candidate", snapshot="b")
    assert "4 of 5" in why(look(canary, loop, instance, None))
    loop.rewarded([0.5], arm="candidate", snapshot="b")
    requests = look(canary, loop, instance, None).run_requests
    assert [request.tags[CANARY_TAG] for request in requests] == [loop.told[-1]]


def test_corrected_rewards_of_one_answer_count_once(
    loop: SmallLoop, instance: dg.DagsterInstance
) -> None:
    canarying(loop)
    answers = loop.rewarded([0.5] * 3, arm="candidate", snapshot="b")
    loop.correct(answers, [0.9] * 3, arm="candidate", snapshot="b")
    assert "3 of 5" in why(look(canary, loop, instance, None))
    under_way = loop.installation.canary(loop.installation.arms())
    assert under_way is not None
    assert under_way.candidate_rewards == (0.9, 0.9, 0.9)


def test_a_canary_is_judged_when_its_time_is_over(
    loop: SmallLoop, instance: dg.DagsterInstance
) -> None:
    canarying(loop)
    loop.clock.advance(18.9)
    assert "0 of 5" in why(look(canary, loop, instance, None))
    loop.clock.advance(0.2)
    assert look(canary, loop, instance, None).run_requests


def test_answers_from_before_the_canary_prove_nothing(
    loop: SmallLoop, instance: dg.DagsterInstance
) -> None:
    loop.rewarded([0.5] * 9, arm="candidate", snapshot="b")
    loop.clock.advance(1)
    canarying(loop)
    assert "0 of 5" in why(look(canary, loop, instance, None))


@pytest.mark.parametrize("status", ["STARTING", "STARTED", "SUCCESS"])
def test_a_canary_is_judged_by_one_run(
    loop: SmallLoop, instance: dg.DagsterInstance, status: str
) -> None:
    canarying(loop)
    loop.clock.advance(60)
    put_run(instance, "promote", status, **{CANARY_TAG: loop.told[-1]})
    assert "a run judges it" in why(look(canary, loop, instance, None))


@pytest.mark.parametrize("status", ["FAILURE", "CANCELED"])
def test_a_judgement_that_came_to_nothing_is_repeated_a_few_times(
    loop: SmallLoop, instance: dg.DagsterInstance, status: str
) -> None:
    canarying(loop)
    loop.clock.advance(60)
    for _ in range(MOST_JUDGEMENTS):
        assert look(canary, loop, instance, None).run_requests
        put_run(instance, "promote", status, **{CANARY_TAG: loop.told[-1]})
    assert "runs failed" in why(look(canary, loop, instance, None))
