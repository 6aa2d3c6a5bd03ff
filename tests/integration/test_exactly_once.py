"""Sink, rewarder and bucketer killed where it hurts: every event is in its table once.

Each test asserts that the agent really died at the named place before it is started again.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from afterbay.lakehouse.prove import prove
from afterbay.schemas import ids
from afterbay.schemas.clock import SystemClock
from afterbay.schemas.events import Cursor, Event, FeedbackReceived, InferenceCompleted, Sampling
from afterbay.streams.kafka import KafkaAddress
from afterbay.streams.outbox import Outbox
from tests.support.agents import Agents, wait_until


def inference(session: int) -> InferenceCompleted:
    now = datetime.now(UTC)
    return InferenceCompleted(
        event_id=ids.new_id(now),
        request_id=ids.new_id(now),
        attempt=1,
        session_id=f"s_{session}",
        turn=1,
        subject="p_1",
        policy="bank-agent",
        arm="current",
        arm_probability=1.0,
        snapshot_id="s1",
        digest="d1",
        model="bank-agent",
        tokenizer="t",
        prompt="hello",
        response="card_block",
        prompt_ids=(1, 2),
        response_ids=(3,),
        response_logprobs=(-0.5,),
        loss_mask=(1,),
        trainable=True,
        altered=False,
        sampling=Sampling(temperature=1, top_p=1, top_k=0, min_p=0, logprobs_mode="processed"),
        finish_reason="stop",
        dispatched_at=now,
        started_at=now,
        completed_at=now,
        node_id="node-1",
    )


def opinion(inference_id: str, score: float) -> FeedbackReceived:
    return FeedbackReceived(
        event_id=ids.new_id(datetime.now(UTC)),
        inference_id=inference_id,
        caller="k1",
        source="person",
        rater="r_1",
        score=score,
    )


class Sender:
    """Stands in for the flusher: the same outbox, another source."""

    def __init__(self, log: KafkaAddress) -> None:
        self._outbox = Outbox("sender", log, SystemClock())
        self._outbox.open()
        self._sequence = 0

    def send(self, *events: Event) -> None:
        self._sequence += 1
        cursor = Cursor(source="sender", ring_id="r", sequence=self._sequence)
        self._outbox.commit(events, cursor)


@pytest.fixture
def agents(tmp_path: Path, log: KafkaAddress) -> Agents:
    return Agents(tmp_path / "home", log)


def all_in(agents: Agents, table: str, column: str, wanted: list[str]) -> None:
    wait_until(
        f"{len(wanted)} rows of {table}",
        lambda: set(wanted) <= set(agents.column(table, column)),
    )


def prove_once(agents: Agents, table: str, column: str, wanted: list[str]) -> None:
    """Each wanted id is in the table once, and `prove` finds nothing."""
    assert sorted(agents.column(table, column)) == sorted(wanted)
    proof = prove(agents.lake)
    assert proof.differences == ()
    assert proof.behind[table] == 0


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
