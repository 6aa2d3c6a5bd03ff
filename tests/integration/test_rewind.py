"""A table restored to an older version, moved back, and filled again by the sink from Kafka."""

from __future__ import annotations

import http.client
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from afterbay.lakehouse import tables
from afterbay.lakehouse.lake import Lake
from afterbay.lakehouse.prove import prove
from afterbay.schemas import ids
from afterbay.streams.kafka import KafkaAddress
from tests.integration.test_deadletters import afterbay, poison
from tests.integration.test_sink import delete_what_is_there
from tests.integration.test_up import afterbay as typed
from tests.integration.test_up import up
from tests.support.agents import Agents, all_in, wait_until
from tests.support.events import Sender, inference


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


def test_an_installation_with_its_own_kafka_is_stopped_rewound_and_filled_again(
    tmp_path: Path,
) -> None:
    home, lake = tmp_path / "home", Lake(str(tmp_path / "home" / "lake"))

    def count() -> int:
        return tables.open(lake, "feedback").count()

    report = up(home)
    key = typed("apikey", "create", home=home).stdout.strip()
    for number in (1, 2):
        rate(report["addresses"]["gateway"], key)
        wait_until("the feedback", lambda n=number: count() == n)  # type: ignore[misc]  # as above
    assert "--force" in typed("rewind", "--table", "feedback", "--yes", home=home).stderr
    assert typed("down", home=home).returncode == 0
    table = tables.open(lake, "feedback")
    first = next(v for v in range(table.version()) if tables.open(lake, "feedback", v).count() == 1)
    table.restore(first)
    done = typed("rewind", "--table", "feedback", "--yes", home=home)
    assert done.returncode == 0, done.stderr
    up(home)
    try:
        wait_until("filled again", lambda: count() == 2)
    finally:
        typed("down", home=home)
    assert prove(lake).differences == ()


def rate(gateway: str, key: str) -> None:
    """Post one opinion about an inference nobody knows yet."""
    body = {"inference_id": ids.new_id(datetime.now(UTC)), "source": "person", "score": 1}
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    connection = http.client.HTTPConnection(gateway.removeprefix("http://"), timeout=30)
    connection.request("POST", "/v1/feedback", json.dumps(body), headers)
    assert connection.getresponse().status == 202
    connection.close()
