"""How Dagster's three processes are started, and what they are told."""

from __future__ import annotations

from pathlib import Path

import pytest

from afterbay.platform import orchestrator
from afterbay.platform.home import Home
from afterbay.platform.orchestrator import CODE, DAEMON, WEB, dagster_specs, workspace_file


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def test_the_three_processes_start_one_after_another(home: Home) -> None:
    specs = {s.name: s for s in dagster_specs(home, 3000, {}, after=("topics",))}
    assert list(specs) == [CODE, DAEMON, WEB]
    assert specs[CODE].after == ("topics",)
    assert CODE in specs[DAEMON].after
    assert CODE in specs[WEB].after


def test_runs_inherit_the_settings_of_the_loop(home: Home) -> None:
    for spec in dagster_specs(home, 3000, {"AFTERBAY_TRAIN_EVERY": "7"}):
        assert spec.env["AFTERBAY_TRAIN_EVERY"] == "7"
        assert spec.env["DAGSTER_HOME"] == str(home.dagster)
        assert spec.env["AFTERBAY_HOME"] == str(home.path)


def test_a_stopped_code_server_takes_its_runs_along(home: Home) -> None:
    assert [s.stop_group for s in dagster_specs(home, 3000, {})] == [True, False, False]


def test_daemon_and_web_find_the_code_server_of_this_start(home: Home) -> None:
    code = dagster_specs(home, 3000, {})[0]
    port = code.command[code.command.index("-p") + 1]
    text = workspace_file(home).read_text()
    assert f"port: {port}" in text
    assert "location_name: afterbay" in text


def test_settings_taken_over_by_hand_are_left_alone(home: Home, tmp_path: Path) -> None:
    file = tmp_path / "dagster.yaml"
    orchestrator._write_instance(file)
    assert "QueuedRunCoordinator" in file.read_text()
    file.write_text("telemetry: {enabled: false}\n")
    orchestrator._write_instance(file)
    assert file.read_text() == "telemetry: {enabled: false}\n"


def test_nobody_answers_on_a_port_that_is_free() -> None:
    assert not orchestrator.answers(1)
