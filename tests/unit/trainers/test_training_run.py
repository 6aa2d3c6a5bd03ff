"""A run reads a slice of a real lake and leaves a sealed snapshot, the same one every time."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from afterbay.lakehouse import slices
from afterbay.schemas.clock import SystemClock
from afterbay.schemas.errors import BadState
from afterbay.streams.signing import Ed25519Verifier
from afterbay.streams.snapshots import BadSnapshot, verify_snapshot
from afterbay.trainers.comparison import compare
from afterbay.trainers.learner import LearnerSettings
from afterbay.trainers.policy import LocalPolicy, load_policy
from afterbay.trainers.replay import Replay, replay_of
from afterbay.trainers.training_run import Order, Outcome, train
from tests.support.answered_lake import AnsweredLake, answered_lake, sampling

SECOND = "019c0000-0000-7000-8000-000000000002"
THIRD = "019c0000-0000-7000-8000-000000000003"
MASKED = (-1, 5, 6)


@pytest.fixture
def lake(tmp_path: Path, policy: LocalPolicy) -> AnsweredLake:
    return answered_lake(tmp_path, policy)


def fill(lake: AnsweredLake, count: int, first: int = 0) -> None:
    for n in range(first, first + count):
        answer, tool = lake.answer(f"where is my card {n}", f"session-{n}")
        lake.reward(answer, float(tool == "fees"))


def do(
    lake: AnsweredLake, spec: slices.SliceSpec, name: str, parent: Path | None = None
) -> Outcome:
    order = Order(
        run_id="run-1",
        spec=spec,
        parent=parent or lake.parent,
        out=lake.home.snapshot(name),
        settings=LearnerSettings(batch=16),
    )
    return train(lake.home, order, SystemClock(), lambda _: None)


def replay(lake: AnsweredLake) -> Replay:
    spec = lake.plan()
    rows = slices.read(lake.home.lake, spec)
    return replay_of(rows, spec, lake.policy, lake.home.logged_policy)


def test_a_run_leaves_a_snapshot_that_verifies_and_says_where_it_came_from(
    lake: AnsweredLake,
) -> None:
    fill(lake, 60)
    spec = lake.plan()
    outcome = do(lake, spec, SECOND)
    folder = lake.home.snapshot(SECOND)
    manifest = verify_snapshot(folder, Ed25519Verifier.load(lake.home.keys), snapshot_id=SECOND)
    assert manifest.text == outcome.manifest.text
    assert manifest.parent == lake.manifest.snapshot_id
    assert manifest.trained_on is not None
    assert slices.from_json(json.dumps(manifest.trained_on)) == spec
    assert manifest.digest != lake.digest
    metrics = manifest.metrics
    assert metrics["rows"] + metrics["rows_held_out"] == 60
    assert metrics["rewards_new"] == metrics["rows"]
    assert metrics["updates"] == metrics["updates_of_lineage"] == -(-metrics["rows"] * 4 // 32)
    assert metrics["kl_per_token_nats_before"] == 0
    assert metrics["ess_before"] == metrics["rows"]
    assert 0 < metrics["ess"] < metrics["rows"]


def test_the_same_slice_and_parent_give_the_same_weights(lake: AnsweredLake) -> None:
    fill(lake, 50)
    spec = lake.plan()
    one, other = do(lake, spec, SECOND), do(lake, spec, THIRD)
    assert one.manifest.files == other.manifest.files
    fill(lake, 5, first=50)  # what came later changes nothing for an earlier slice
    lake.plan()
    assert do(lake, spec, THIRD).manifest.files == one.manifest.files


def test_a_child_is_trained_on_what_its_parent_has_not_seen(lake: AnsweredLake) -> None:
    fill(lake, 40)
    first = do(lake, lake.plan(), SECOND)
    fill(lake, 8, first=40)
    again, _ = lake.answer("again", "session-x")
    lake.reward(again, 0.0)
    lake.reward(again, 1.0, count=2)
    spec = lake.plan()
    held_out = sum(slices.held_out([f"session-{n}" for n in [*range(40, 48), "x"]]))
    second = do(lake, spec, THIRD, parent=lake.home.snapshot(SECOND))
    assert second.manifest.parent == first.manifest.snapshot_id
    metrics = second.manifest.metrics
    assert metrics["rewards_new"] == 9 - held_out
    both = first.manifest.metrics["updates"] + metrics["updates"]
    assert metrics["updates_of_lineage"] == both


def test_rows_that_may_not_be_used_are_refused_with_a_reason(lake: AnsweredLake) -> None:
    spelled = lake.policy.spell("fees")
    bad: dict[str, dict[str, Any]] = {
        "stale": {"snapshot_id": "other", "segments": ({"start": 0, "snapshot_id": "other"},)},
        "untrainable": {"trainable": False, "untrainable_reason": "length"},
        "tokenizer": {"tokenizer": "another"},
        "length": {"loss_mask": (1,)},
        "nan_logprob": {"response_logprobs": (float("nan"),) * len(spelled),
                        "response_ids": spelled, "loss_mask": (1,) * len(spelled)},
        "altered": {"altered": True, "response_ids": (-1,), "response_logprobs": (-1.0,),
                    "loss_mask": (0,)},
    }  # fmt: skip
    expected = {}
    for reason, values in bad.items():
        answer, _ = lake.answer("hello", f"s-{reason}", **values)
        lake.reward(answer, 0.5)
        expected[answer] = reason
    greedy, _ = lake.answer("hello", "s-greedy", sampling=sampling(temperature=0))
    lake.reward(greedy, 0.5)
    other, _ = lake.answer("hello", "s-other", tools=("something_else",))
    lake.reward(other, 0.5)
    fill(lake, 3)
    found = replay(lake)
    assert {r.inference_id: r.reason for r in found.refusals} == {
        **expected,
        greedy: "untrainable",
        other: "untrainable",
    }
    assert len(found.rows) == 3


def test_expired_rows_are_refused_before_anything_else(lake: AnsweredLake) -> None:
    fill(lake, 2)
    spec = replace_spec(lake.plan(), max_age_s=0.5)
    rows = slices.read(lake.home.lake, spec)
    found = replay_of(rows, spec, lake.policy, lake.home.logged_policy)
    assert [(r.stage, r.reason) for r in found.refusals] == [("slice", "expired")] * 2


def replace_spec(spec: slices.SliceSpec, **values: float) -> slices.SliceSpec:
    return slices.from_json(json.dumps({**json.loads(spec.to_json()), **values}))


def test_a_masked_prompt_is_weighed_by_the_snapshot_that_answered(lake: AnsweredLake) -> None:
    spelled = lake.policy.spell("fees")
    absurd = (-40.0,) * len(spelled)
    answer, _ = lake.answer(
        "x", "s", altered=True, prompt_ids=MASKED, response_ids=spelled,
        response_logprobs=absurd, loss_mask=(1,) * len(spelled),
    )  # fmt: skip
    lake.reward(answer, 1.0)
    (row,) = replay(lake).rows
    batch = lake.policy.prepare([row.sample])
    assert row.sample.prompt_ids == MASKED
    assert list(row.behaviour) == lake.policy.log_probs(batch).detach()[0].tolist()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda folder: (folder / "policy.safetensors").unlink(),
        lambda folder: (folder / "config.json").write_bytes(b"{}"),
    ],
)
def test_without_that_snapshot_a_masked_row_is_refused(
    lake: AnsweredLake, spoil: Callable[[Path], None]
) -> None:
    answer, _ = lake.answer("x", "s", altered=True, prompt_ids=MASKED)
    lake.reward(answer, 1.0)
    spoil(lake.parent)
    assert [r.reason for r in replay(lake).refusals] == ["altered"]


def test_a_parent_that_is_not_what_was_signed_is_refused(lake: AnsweredLake) -> None:
    fill(lake, 3)
    spec = lake.plan()
    weights = lake.parent / "policy.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x00")
    with pytest.raises(BadSnapshot):
        do(lake, spec, SECOND)


def test_a_slice_without_a_usable_row_is_refused(lake: AnsweredLake) -> None:
    with pytest.raises(BadState, match="nothing is left to train on"):
        do(lake, lake.plan(), SECOND)


def test_a_policy_beside_itself_differs_by_nothing_and_a_better_one_is_better(
    lake: AnsweredLake,
) -> None:
    fill(lake, 150)
    spec = lake.plan()
    do(lake, spec, SECOND)
    itself = compare(lake.home, spec, lake.parent, lake.parent)
    assert itself.candidate == itself.current
    assert itself.current.snips == itself.logged_reward
    assert itself.current.ess == itself.rows == itself.current.n
    assert itself.current_kl_per_token_nats == 0
    better = compare(lake.home, spec, lake.home.snapshot(SECOND), lake.parent)
    assert better.candidate.snips > better.current.snips
    assert better.candidate.ess < better.current.ess
    assert json.loads(json.dumps(better.figures()))["candidate"]["n"] == better.rows


def test_without_held_out_rows_there_is_no_estimate_but_a_sample_size_of_nothing(
    lake: AnsweredLake,
) -> None:
    fill(lake, 1, first=0 if not slices.held_out(["session-0"])[0] else 1)
    found = compare(lake.home, lake.plan(), lake.parent, lake.parent).figures()
    assert found["candidate"] == {"snips": None, "half_width": None, "ess": 0.0, "n": 0}


def test_a_trained_snapshot_answers(lake: AnsweredLake) -> None:
    fill(lake, 20)
    do(lake, lake.plan(), SECOND)
    policy = load_policy(lake.home.snapshot(SECOND))
    assert replace(lake, policy=policy).answer("hi", "s")[1] in policy.config.tools
