"""Trainers as processes, against a real broker: what they tell leaves once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from afterbay.schemas.clock import SystemClock
from afterbay.schemas.events import ExperienceDropped, PolicySnapshot
from afterbay.streams.arms import fold_arms
from afterbay.streams.follow import Follower
from afterbay.streams.kafka import KafkaAddress
from afterbay.streams.publishing import read_arms
from afterbay.streams.signing import Ed25519Verifier
from afterbay.streams.snapshots import folder_of, verify_snapshot
from afterbay.trainers.drops import tell_drops
from afterbay.trainers.network import Shape, new_network
from afterbay.trainers.policy import LocalPolicy, PolicyConfig, load_policy
from afterbay.trainers.replay import Refusal
from afterbay.trainers.tokenizer import Tokenizer
from tests.support.answered_lake import AnsweredLake, answered_lake

TOOLS = ("card_block", "fees", "transfer")
NEW = "019c0000-0000-7000-8000-000000000002"


def program(name: str, log: KafkaAddress, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "AFTERBAY_BOOTSTRAP": log.bootstrap,
        "AFTERBAY_TOPIC_PREFIX": log.prefix,
    }
    return subprocess.run(
        [sys.executable, "-P", "-m", f"afterbay.trainers.{name}", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=environment,
    )


def told(log: KafkaAddress, topic: str, at_least: int) -> list[object]:
    """Every committed event of a topic, once there are `at_least` and the end is reached."""
    follower = Follower(log, [topic])
    events: list[object] = []
    clock = SystemClock()
    deadline = clock.monotonic() + 30
    while (len(events) < at_least or not follower.caught_up) and clock.monotonic() < deadline:
        events += [followed.event for followed in follower.poll(0.2)]
    follower.close()
    return events


@pytest.fixture
def lake(tmp_path: Path) -> AnsweredLake:
    tokenizer = Tokenizer.train(["where is my card", *TOOLS * 50], 300)
    shape = Shape(vocabulary=tokenizer.size, embedding=16, width=32)
    config = PolicyConfig(shape=shape, tools=TOOLS)
    policy = LocalPolicy(config, tokenizer, new_network(shape, seed=1), lambda: 1)
    made = answered_lake(tmp_path, policy)
    for n in range(60):
        answer, tool = made.answer(f"where is my card {n}", f"session-{n}")
        made.reward(answer, float(tool == "fees"))
    return made


def test_a_training_drops_what_it_refuses_once_however_often_it_is_run(
    lake: AnsweredLake, log: KafkaAddress, tmp_path: Path
) -> None:
    refused = [lake.answer("x", f"bad-{n}", trainable=False)[0] for n in range(3)]
    for answer in refused:
        lake.reward(answer, 1.0)
    slice_file = tmp_path / "slice.json"
    slice_file.write_text(lake.plan().to_json())
    out = lake.home.snapshot(NEW)
    arguments = (
        *("--home", str(lake.home.root), "--run-id", "run-9", "--slice", str(slice_file)),
        *("--parent", str(lake.parent), "--out", str(out)),
    )
    first = program("train", log, *arguments)
    assert first.returncode == 0, first.stderr
    figures = json.loads(first.stdout)
    assert figures["dropped_now"] == figures["rows_refused"] == 3
    manifest = verify_snapshot(out, Ed25519Verifier.load(lake.home.keys), snapshot_id=NEW)
    again = json.loads(program("train", log, *arguments).stdout)
    assert (again["dropped_now"], again["digest"]) == (0, manifest.digest)
    # a run of another id must not make the first one forget that it is done
    tell_drops(log, "bank-agent", "run-10", [Refusal("i", "weigh", "altered", 0)], SystemClock())
    assert json.loads(program("train", log, *arguments).stdout)["dropped_now"] == 0
    events = told(log, ExperienceDropped.TOPIC, 4)
    mine = [e for e in events if isinstance(e, ExperienceDropped) and e.run_id == "run-9"]
    assert sorted(e.inference_id for e in mine) == sorted(refused)
    assert {(e.stage, e.reason, e.lag) for e in mine} == {("weigh", "untrainable", 0)}
    judged = program(
        "offpolicy",
        log,
        *("--home", str(lake.home.root), "--slice", str(slice_file), "--json"),
        *("--candidate", str(out), "--current", str(lake.parent)),
    )
    numbers = json.loads(judged.stdout)
    assert numbers["current"]["ess"] == numbers["rows"] > 0
    assert 0 <= numbers["candidate"]["snips"] <= 1


def test_a_warm_start_is_published_and_promoted(log: KafkaAddress, tmp_path: Path) -> None:
    messages = ["text,category", *(f"my card is lost {n},lost" for n in range(8))]
    messages += [f"send money to a friend {n},send" for n in range(8)]
    (tmp_path / "m.csv").write_text("\n".join(messages) + "\n")
    (tmp_path / "t.json").write_text('{"card_block": ["lost"], "transfer": ["send"]}')
    files = ("--messages", str(tmp_path / "m.csv"), "--tools", str(tmp_path / "t.json"))
    home = tmp_path / "home"
    done = program("warmstart", log, *files, "--home", str(home), "--publish")
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert (figures["events"], figures["labels"], figures["accuracy"]) == (2, 16, 1.0)
    events = [e for e in told(log, PolicySnapshot.TOPIC, 2) if isinstance(e, PolicySnapshot)]
    assert [event.action for event in events] == ["published", "promoted"]
    arms = fold_arms(events)
    assert arms == read_arms(log, "bank-agent", SystemClock())
    assert arms.current is not None
    folder = folder_of(arms.current.uri, home)
    assert arms.current.snapshot_id == figures["snapshot_id"] == folder.name
    verify_snapshot(folder, Ed25519Verifier.load(home / "keys"), arms.current.digest)
    assert load_policy(folder).tokenizer_fingerprint == figures["tokenizer"]
    judged = json.loads(program("evaluate", log, *files, "--snapshot", str(folder)).stdout)
    assert (judged["messages"], judged["greedy_accuracy"]) == (16, 1.0)
    assert judged["sampled_reward"] > 0.9


def test_bad_arguments_are_refused_with_a_reason(log: KafkaAddress, tmp_path: Path) -> None:
    done = program(
        "train",
        log,
        *("--home", str(tmp_path), "--run-id", "r", "--slice", str(tmp_path / "no.json")),
        *("--parent", str(tmp_path), "--out", str(tmp_path / "out")),
    )
    assert done.returncode == 2
    assert "no.json" in done.stderr
