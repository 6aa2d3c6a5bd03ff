"""Agents that freeze, fail at a commit, lose their group or topic: each event stays once."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
)

from afterbay.streams.admin import ensure_topics
from afterbay.streams.agent import EXIT_FENCED, EXIT_STATE
from afterbay.streams.kafka import KafkaAddress
from tests.support.agents import PATIENCE_S, Agents, all_in, end, prove_once, wait_until
from tests.support.events import Sender, inference, opinion
from tests.support.kafka import TEST_PARTITIONS

SESSION_S = "1.5"
FEEDBACK = "feedback.received.v2"


@pytest.fixture
def agents(tmp_path: Path, log: KafkaAddress) -> Agents:
    return Agents(tmp_path / "home", log, {"AFTERBAY_SESSION_S": SESSION_S})


def frozen(process: subprocess.Popen[bytes]) -> bool:
    """Whether it stands still (state T, proc(5))."""
    stat = Path(f"/proc/{process.pid}/stat").read_text()
    return stat.rpartition(")")[2].split()[0] == "T"


@contextmanager
def goes_on(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """A frozen process that is let go at the start and stopped as usual at the end."""
    process.send_signal(signal.SIGCONT)
    yield
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) in (0, EXIT_FENCED)


@pytest.mark.parametrize(
    "at", ["ledger.before_commit:1", "ledger.before_commit:3", "ledger.after_commit:2"]
)
def test_a_sink_frozen_past_its_session_in_the_middle_of_a_flush_doubles_nothing(
    agents: Agents, log: KafkaAddress, at: str
) -> None:
    sender = Sender(log)
    sent = [inference(n) for n in range(40)]
    sender.send(*sent, *(opinion(event.event_id, 1.0) for event in sent))
    wanted = [event.event_id for event in sent]
    with agents.armed("sink", "FREEZE", at) as zombie:
        wait_until("it freezes with a flush half done", lambda: frozen(zombie))
        with agents.running("sink"):
            all_in(agents, "inference", "event_id", wanted)
            all_in(agents, "feedback", "inference_id", wanted)
            with goes_on(zombie):
                more = [inference(n) for n in range(20)]
                sender.send(*more)
                wanted += [event.event_id for event in more]
                all_in(agents, "inference", "event_id", wanted)
    prove_once(agents, "inference", "event_id", wanted)


@pytest.mark.parametrize(
    ("agent", "at", "table"),
    [("rewarder", "outbox.produced", "reward"), ("bucketer", "ledger.before_commit", "experience")],
)
def test_a_frozen_rewarder_or_bucketer_is_fenced_when_it_goes_on(
    agents: Agents, log: KafkaAddress, agent: str, at: str, table: str
) -> None:
    asked = [inference(n) for n in range(30)]
    Sender(log).send(*asked, *(opinion(event.event_id, 1.0) for event in asked))
    wanted = [event.event_id for event in asked]
    with agents.running("sink", *({"rewarder"} - {agent})):
        all_in(agents, "feedback", "inference_id", wanted)
        with agents.armed(agent, "FREEZE", at) as zombie:
            wait_until("it freezes", lambda: frozen(zombie))
            with agents.running(agent):
                all_in(agents, table, "inference_id", wanted)
                zombie.send_signal(signal.SIGCONT)
                assert zombie.wait(PATIENCE_S) == EXIT_FENCED
    prove_once(agents, table, "inference_id", wanted)


@pytest.mark.parametrize(
    ("agent", "at"),
    [
        ("sink", "ledger.after_commit:2"),
        ("sink", "ledger.before_commit:2"),
        ("rewarder", "outbox.committed"),
        ("rewarder", "outbox.produced"),
        ("bucketer", "ledger.after_commit"),
        ("bucketer", "ledger.before_commit"),
    ],
)
def test_an_exception_around_a_commit_is_found_out_and_the_agent_goes_on(
    agents: Agents, log: KafkaAddress, agent: str, at: str
) -> None:
    asked = [inference(n) for n in range(30)]
    Sender(log).send(*asked, *(opinion(event.event_id, 1.0) for event in asked))
    wanted = [event.event_id for event in asked]
    with (
        agents.running(*sorted({"sink", "rewarder", "bucketer"} - {agent})),
        agents.armed(agent, "FAIL", at) as failing,
    ):
        all_in(agents, "experience", "inference_id", wanted)
        failing.send_signal(signal.SIGTERM)
        assert failing.wait(PATIENCE_S) == 0
    assert agents.hits == [at.partition(":")[0]]
    for table in ("reward", "experience"):
        prove_once(agents, table, "inference_id", wanted)


def test_a_sink_whose_consumer_group_was_deleted_goes_on_where_the_tables_stand(
    agents: Agents, log: KafkaAddress
) -> None:
    sender = Sender(log)
    first, second = ([inference(n) for n in range(20)] for _ in range(2))
    wanted = [event.event_id for event in first]
    sender.send(*first)
    sink = agents.start("sink")
    try:
        all_in(agents, "inference", "event_id", wanted)
        sink.send_signal(signal.SIGSTOP)  # a group can be deleted only while nobody is in it
        wait_until("the group is deleted", lambda: group_deleted(log))
        sink.send_signal(signal.SIGCONT)
        sender.send(*second)
        wanted += [event.event_id for event in second]
        all_in(agents, "inference", "event_id", wanted)
        sink.send_signal(signal.SIGTERM)
        assert sink.wait(PATIENCE_S) == 0
    finally:
        end(sink)
    prove_once(agents, "inference", "event_id", wanted)


def group_deleted(log: KafkaAddress) -> bool:
    """One try to delete the sinks' group."""
    admin = AdminClient({"bootstrap.servers": log.bootstrap})
    (future,) = admin.delete_consumer_groups([log.group("sink")]).values()
    try:
        future.result()
    except KafkaException:
        return False
    return True


def delete_topic(log: KafkaAddress) -> None:
    """As a person would who is in a hurry."""
    admin = AdminClient({"bootstrap.servers": log.bootstrap})
    (future,) = admin.delete_topics([log.topic(FEEDBACK)], operation_timeout=30).values()
    future.result()


@pytest.mark.parametrize("asleep", [False, True])
def test_a_topic_made_again_under_its_old_name_is_another_source_read_from_its_start(
    agents: Agents, log: KafkaAddress, asleep: bool
) -> None:
    """Asleep meanwhile, the sink finds more offsets than it had read: nothing looks missing."""
    agents.settings["AFTERBAY_SESSION_S"] = "30"
    old = [opinion(inference(n).event_id, 1.0) for n in range(4)]
    new = [opinion(inference(n).event_id, 0.0) for n in range(40)]
    wanted = [event.event_id for event in old]
    sender = Sender(log)
    sender.send(*old)
    sink = agents.start("sink")
    try:
        all_in(agents, "feedback", "event_id", wanted)
        sink.send_signal(signal.SIGSTOP if asleep else signal.SIGCONT)
        delete_topic(log)
        wait_until("the topic is there again", lambda: bool(ensure_topics(log, TEST_PARTITIONS)))
        Sender(log).send(*new)
        wanted += [event.event_id for event in new]
        sink.send_signal(signal.SIGCONT)
        all_in_restarting(agents, sink, wanted)
    finally:
        end(sink)
    prove_once(agents, "feedback", "event_id", wanted)


def all_in_restarting(agents: Agents, sink: subprocess.Popen[bytes], wanted: list[str]) -> None:
    """Everything in; a sink that stopped to be looked at is started again, as the message says."""

    def there() -> bool:
        return set(wanted) <= set(agents.column("feedback", "event_id"))

    wait_until("new events, or a refusal", lambda: there() or sink.poll() is not None)
    if sink.poll() is not None:
        assert sink.returncode == EXIT_STATE
    with agents.running("sink"):
        wait_until("new events", there)
