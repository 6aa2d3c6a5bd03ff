"""Sink, rewarder and bucketer killed where it hurts: every event is in its table once.

Each test asserts that the agent really died at the named place before it is started again.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from afterbay.lakehouse.prove import prove
from afterbay.streams.kafka import KafkaAddress
from tests.support.agents import Agents, all_in, prove_once, wait_until
from tests.support.events import Sender, inference, opinion


@pytest.fixture
def agents(tmp_path: Path, log: KafkaAddress) -> Agents:
    return Agents(tmp_path / "home", log)


@pytest.mark.parametrize(
    "crash_at", ["ledger.before_commit:2", "ledger.after_commit", "ledger.after_commit:3"]
)
def test_a_sink_killed_around_a_commit_writes_each_event_once(
    agents: Agents, log: KafkaAddress, crash_at: str
) -> None:
    sender = Sender(log)
    first = [inference(n) for n in range(40)]
    sender.send(*first, *(opinion(e.event_id, 1.0) for e in first))
    agents.die("sink", crash_at)
    second = [inference(n) for n in range(40)]
    sender.send(*second)
    wanted = [e.event_id for e in (*first, *second)]
    with agents.running("sink"):
        all_in(agents, "inference", "event_id", wanted)
    prove_once(agents, "inference", "event_id", wanted)


@pytest.mark.parametrize("crash_at", ["outbox.produced", "outbox.committed"])
def test_a_rewarder_killed_around_its_transaction_rewards_each_opinion_once(
    agents: Agents, log: KafkaAddress, crash_at: str
) -> None:
    sender = Sender(log)
    asked = [inference(n) for n in range(30)]
    sender.send(*asked, *(opinion(e.event_id, 1.0) for e in asked))
    wanted = [e.event_id for e in asked]
    with agents.running("sink"):
        all_in(agents, "feedback", "inference_id", wanted)
        agents.die("rewarder", crash_at)
        with agents.running("rewarder"):
            all_in(agents, "reward", "inference_id", wanted)
    prove_once(agents, "reward", "inference_id", wanted)


@pytest.mark.parametrize("crash_at", ["ledger.before_commit", "ledger.after_commit"])
def test_a_bucketer_killed_around_its_commit_makes_each_experience_once(
    agents: Agents, log: KafkaAddress, crash_at: str
) -> None:
    sender = Sender(log)
    asked = [inference(n) for n in range(30)]
    sender.send(*(opinion(e.event_id, 1.0) for e in asked))
    sender.send(*asked)
    wanted = [e.event_id for e in asked]
    with agents.running("sink", "rewarder"):
        all_in(agents, "reward", "inference_id", wanted)
        all_in(agents, "inference", "event_id", wanted)
        agents.die("bucketer", crash_at)
        with agents.running("bucketer"):
            all_in(agents, "experience", "inference_id", wanted)
    prove_once(agents, "experience", "inference_id", wanted)


def test_early_corrected_and_default_rewards_each_end_as_the_right_experience(
    agents: Agents, log: KafkaAddress
) -> None:
    agents.settings["AFTERBAY_REWARD_WAIT_S"] = "3"
    sender = Sender(log)
    early, corrected, silent = inference(1), inference(2), inference(3)
    sender.send(opinion(early.event_id, 1.0))
    with agents.running("sink", "rewarder", "bucketer"):
        all_in(agents, "reward", "inference_id", [early.event_id])
        sender.send(early, corrected, silent, opinion(corrected.event_id, 1.0))
        all_in(agents, "experience", "inference_id", [early.event_id, corrected.event_id])
        sender.send(opinion(corrected.event_id, 0.0), opinion(corrected.event_id, 0.0))
        all_in(agents, "experience", "inference_id", [silent.event_id])
        wait_until("the correction", lambda: current(agents)[corrected.event_id] < 0.5)
    found = current(agents)
    assert found[early.event_id] == 1.0
    assert found[silent.event_id] == 0.5
    assert found[corrected.event_id] == pytest.approx(1 / 3)
    assert prove(agents.lake).differences == ()


def current(agents: Agents) -> dict[str, float]:
    from afterbay.lakehouse.query import connect

    rows = connect(agents.lake).execute("select inference_id, reward from experience_current")
    return dict(rows.fetchall())
