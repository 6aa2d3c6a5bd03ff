"""A table restored to an older version, moved back, and filled again by the sink from Kafka."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from afterbay.lakehouse import tables
from afterbay.lakehouse.prove import prove
from afterbay.streams.kafka import KafkaAddress
from tests.integration.test_deadletters import afterbay, poison
from tests.integration.test_exactly_once import Sender, all_in, inference
from tests.integration.test_sink import delete_what_is_there
from tests.support.agents import Agents, wait_until


@pytest.fixture
def agents(tmp_path: Path, log: KafkaAddress) -> Agents:
    return Agents(tmp_path / "home", log)


def stored(agents: Agents, sender: Sender, table: str, rounds: int = 3) -> tuple[list[str], int]:
    """Events written in rounds, with poison among them; their ids, `table`'s first full version."""
    sent: list[str] = []
    first = 0
    with agents.running("sink"):
        for number in range(rounds):
            events = [inference(n) for n in range(10)]
            sender.send(*events)
            poison(agents.log, b"abcd")
            sent += [event.event_id for event in events]
            all_in(agents, "inference", "event_id", sent)
            dead = number + 1
            wait_until("poison", lambda n=dead: len(agents.column("deadletter", "reason")) == n)  # type: ignore[misc]  # mypy cannot infer a lambda's default
            first = first or tables.open(agents.lake, table).version()
    return sent, first


@pytest.mark.parametrize("table", ["inference", "deadletter", "archive"])
def test_a_restored_table_is_moved_back_and_filled_again(
    agents: Agents, log: KafkaAddress, table: str
) -> None:
    said = agents.home / "run" / "sink.log"
    sent, first = stored(agents, Sender(log), table)
    tables.open(agents.lake, table).restore(first)
    assert prove(agents.lake).differences != ()
    with agents.running("sink"):  # as it is, the sink skips what the restore took
        wait_until("it goes on", lambda: said.read_text().count("took over") == 2)
        assert refused(agents, table)
    assert prove(agents.lake).differences != ()
    done = afterbay(agents, "rewind", "--table", table, "--yes")
    assert done.returncode == 0, done.stderr
    assert "goes back to" in done.stdout
    again = afterbay(agents, "rewind", "--table", table, "--yes", "--json")
    assert json.loads(again.stdout)["steps"] == []
    with agents.running("sink"):
        wait_until("filled again", lambda: whole(agents))
    assert sorted(agents.column("inference", "event_id")) == sorted(sent)
    assert len(agents.column("deadletter", "event_id")) == 3
    assert prove(agents.lake).differences == ()


def refused(agents: Agents, table: str) -> bool:
    """Whether the command refuses because a sink is in the group."""
    done = afterbay(agents, "rewind", "--table", table, "--json")  # without --yes it asks, and ends
    return done.returncode == 1 and "--force" in done.stderr


def whole(agents: Agents) -> bool:
    proof = prove(agents.lake)
    return not proof.differences and not any(proof.behind.values())


def test_what_kafka_has_let_go_is_not_moved_back_to(agents: Agents, log: KafkaAddress) -> None:
    _, first = stored(agents, Sender(log), "inference", rounds=2)
    tables.open(agents.lake, "inference").restore(first)
    delete_what_is_there(log)
    before = tables.open(agents.lake, "inference").version()
    done = afterbay(agents, "rewind", "--table", "inference", "--yes")
    assert done.returncode == 1
    assert "Kafka holds it from" in done.stderr
    assert tables.open(agents.lake, "inference").version() == before
