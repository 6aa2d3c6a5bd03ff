"""`afterbay up`, `status`, `down` as a person uses them: real processes, killed in every way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from afterbay.platform.home import Home
from afterbay.platform.processes import wait_until
from afterbay.platform.state import leftovers, read_state, supervisor_of

SMALL = (
    *("--port", "0", "--broker-port", "0", "--no-dagster", "--nodes", "1"),
    *("--broker-heap-mb", "512"),
)
AFTERBAY = (sys.executable, "-m", "afterbay.platform.cli")


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AFTERBAY_")}
    return {**kept, "AFTERBAY_PARTITIONS": "2", "AFTERBAY_FLUSH_S": "1"}


def afterbay(*arguments: str, home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*AFTERBAY, *arguments, "--home", str(home)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


def up(home: Path) -> dict[str, Any]:
    done = afterbay("up", *SMALL, "--detach", "--json", home=home)
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def status(home: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(afterbay("status", "--json", home=home).stdout)
    return found


def process(home: Path, name: str) -> dict[str, Any]:
    (found,) = (p for p in status(home)["processes"] if p["name"] == name)
    return dict(found)


def nothing_is_left(home: Path) -> bool:
    state = read_state(Home(home))
    return state is not None and not leftovers(state) and supervisor_of(Home(home)) is None


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A running installation; its tests come in the order in which they hurt it more."""
    folder = tmp_path_factory.mktemp("up")
    up(folder)
    yield folder
    done = afterbay("down", home=folder)
    assert done.returncode == 0, done.stderr
    assert nothing_is_left(folder)


def test_status_shows_every_process_healthy_and_every_table(home: Path) -> None:
    found = status(home)
    assert (found["running"], found["phase"]) == (True, "ready")
    assert {p["name"] for p in found["processes"] if p["phase"] == "ready"} == {
        *("broker", "scheduler", "node-1", "gateway", "flusher"),
        *("sink", "rewarder", "bucketer", "maintenance"),
    }
    assert all(p["healthy"] is not False for p in found["processes"])
    assert found["data"]["problems"] == []
    assert set(found["data"]["lag"]) == {"sink", "rewarder", "bucketer"}
    assert found["data"]["tables"]["inference"] == 0
    assert [ring["name"] for ring in found["rings"]] == ["l1"]
    assert found["addresses"]["gateway"].startswith("http://127.0.0.1:")


def test_topics_are_there_and_made_only_once(home: Path) -> None:
    topics = json.loads(afterbay("topics", "--json", home=home).stdout)
    assert len(topics) == 12
    assert not any(topic["made"] for topic in topics)
    assert {topic["partitions"] for topic in topics} == {1, 2}


def test_a_second_up_of_the_home_names_the_process_that_runs_it(home: Path) -> None:
    done = afterbay("up", *SMALL, home=home)
    assert done.returncode == 1
    assert f"run by process {status(home)['supervisor']} already" in done.stderr
    assert "afterbay down" in done.stderr


def test_an_agent_that_is_killed_is_started_again(home: Path) -> None:
    before = process(home, "sink")
    os.kill(before["pid"], signal.SIGKILL)
    assert wait_until(lambda: process(home, "sink")["restarts"] == 1, 30)
    assert wait_until(lambda: bool(process(home, "sink")["healthy"]), 30)


def test_a_broker_that_is_killed_comes_back_with_its_topics(home: Path) -> None:
    os.kill(process(home, "broker")["pid"], signal.SIGKILL)
    assert wait_until(lambda: process(home, "broker")["restarts"] == 1, 30)
    assert wait_until(lambda: process(home, "broker")["phase"] == "ready", 60)
    topics = json.loads(afterbay("topics", "--json", home=home).stdout)
    assert not any(topic["made"] for topic in topics)
    assert wait_until(lambda: all(p["healthy"] is not False for p in status(home)["processes"]), 60)


def test_a_killed_supervisor_leaves_no_process_and_the_next_up_goes_on(home: Path) -> None:
    supervisor = status(home)["supervisor"]
    os.kill(supervisor, signal.SIGKILL)
    assert wait_until(lambda: nothing_is_left(home), 30)
    assert status(home)["phase"] == "killed"
    assert up(home)["pid"] != supervisor
    assert status(home)["phase"] == "ready"


def test_ctrl_c_stops_everything_that_runs_in_the_foreground(tmp_path: Path) -> None:
    with subprocess.Popen(
        [*AFTERBAY, "up", *SMALL, "--home", str(tmp_path)],
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout is not None
        said = iter(running.stdout.readline, "")
        assert any(line.startswith("afterbay is up") for line in said)
        running.send_signal(signal.SIGINT)
        assert running.wait(60) == 0
    assert nothing_is_left(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_up_in_the_background_that_is_interrupted_leaves_nothing(
    tmp_path: Path, number: signal.Signals
) -> None:
    with subprocess.Popen(
        [*AFTERBAY, "up", *SMALL, "--detach", "--home", str(tmp_path)], env=environment()
    ) as starting:
        assert wait_until(lambda: supervisor_of(Home(tmp_path)) is not None, 60)
        starting.send_signal(number)
        assert starting.wait(60) == 130
    state = read_state(Home(tmp_path))
    assert state is None or not leftovers(state)
    assert supervisor_of(Home(tmp_path)) is None


def test_a_taken_gateway_port_is_named_with_the_option_that_changes_it(
    home: Path, tmp_path: Path
) -> None:
    port = status(home)["addresses"]["gateway"].rpartition(":")[2]
    arguments = ("up", "--port", port, "--broker-port", "0", "--no-dagster")
    done = afterbay(*arguments, home=tmp_path)
    assert done.returncode == 1
    assert f"gateway: port {port} on 127.0.0.1 is in use" in done.stderr
    assert "--port" in done.stderr
