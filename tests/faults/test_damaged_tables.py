"""Damaged and restored tables: the refusal names the remedy, which loses and doubles nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from afterbay.lakehouse import tables
from afterbay.lakehouse.commits import commit_name, read_commit
from afterbay.lakehouse.maintenance import MaintenanceSettings, maintain
from afterbay.lakehouse.prove import prove
from afterbay.lakehouse.repair import restore
from afterbay.streams.agent import EXIT_STATE
from afterbay.streams.kafka import KafkaAddress
from tests.support.agents import PATIENCE_S, Agents, all_in, end, prove_once
from tests.support.events import Sender, inference, opinion

AGENTS = ("sink", "rewarder", "bucketer")
WRITER = {"experience": "bucketer"}
"""Agent that writes a table; the sink writes all others."""


@pytest.fixture
def agents(tmp_path: Path, log: KafkaAddress) -> Agents:
    return Agents(tmp_path / "home", log)


class Traffic:
    """Rewarded inferences, in rounds with all agents running."""

    def __init__(self, agents: Agents) -> None:
        self._agents = agents
        self._sender = Sender(agents.log)
        self.wanted: list[str] = []

    def round(self, bursts: int = 1) -> None:
        """Twenty more a burst, all the way into experience; then everything is stopped."""
        with self._agents.running(*AGENTS):
            for _ in range(bursts):
                self.send()
                for table, column in self.places():
                    all_in(self._agents, table, column, self.wanted)

    def send(self) -> None:
        """Twenty inferences and an opinion about each."""
        some = [inference(n) for n in range(20)]
        self._sender.send(*some, *(opinion(event.event_id, 1.0) for event in some))
        self.wanted += [event.event_id for event in some]

    def check(self) -> None:
        """Each inference is in every table once."""
        for table, column in self.places():
            prove_once(self._agents, table, column, self.wanted)

    @staticmethod
    def places() -> Sequence[tuple[str, str]]:
        """Tables and the column of the inference's id."""
        others = ("feedback", "reward", "experience")
        return [("inference", "event_id"), *((table, "inference_id") for table in others)]


@pytest.fixture
def traffic(agents: Agents) -> Traffic:
    traffic = Traffic(agents)
    traffic.round(bursts=2)
    return traffic


def refused(agents: Agents, name: str) -> str:
    """What an agent says that ends because a person has to look; it does not try for ever."""
    process = agents.start(name)
    try:
        assert process.wait(PATIENCE_S) == EXIT_STATE
    finally:
        end(process)
    said = (agents.home / "run" / f"{name}.log").read_text()
    return next(line for line in said.splitlines() if "BadState" in line)


def last_with_rows(agents: Agents, table: str) -> int:
    """Newest version of a table that added a file."""
    newest = tables.open(agents.lake, table).version()
    commits = (read_commit(agents.lake, table, v) for v in range(newest, 0, -1))
    return next(commit.version for commit in commits if commit is not None and commit.added)


@pytest.mark.parametrize(
    ("table", "kept"),
    [("inference", 0), ("feedback", 40), ("archive", 40), ("experience", 40)],
)
def test_a_torn_newest_commit_is_refused_by_name_and_moved_away_it_is_read_again(
    agents: Agents, traffic: Traffic, table: str, kept: int
) -> None:
    newest = tables.open(agents.lake, table).version()
    file = Path(agents.lake.uri(table), commit_name(newest))
    file.write_bytes(file.read_bytes()[:kept])
    said = refused(agents, WRITER.get(table, "sink"))
    assert f"table {table}: commit {newest} is empty or torn ({kept} bytes" in said
    assert f"move {commit_name(newest)} out of the folder and start again" in said
    file.rename(agents.home / file.name)
    traffic.round()
    traffic.check()


def test_a_torn_checkpoint_is_refused_by_name_and_removed_the_commits_tell_all(
    agents: Agents, traffic: Traffic
) -> None:
    done = maintain(agents.lake, "inference", MaintenanceSettings(checkpoint_commits=1))
    logs = Path(agents.lake.uri("inference"), "_delta_log")
    file = logs / f"{done.checkpoint:020}.checkpoint.parquet"
    file.write_bytes(file.read_bytes()[:100])
    said = refused(agents, "sink")
    assert f"checkpoint {file.name} is torn (100 bytes)" in said
    assert "delete it and _delta_log/_last_checkpoint" in said
    file.unlink()
    (logs / "_last_checkpoint").unlink()
    traffic.round()
    traffic.check()


def test_a_missing_data_file_is_named_with_the_version_to_go_back_to(
    agents: Agents, traffic: Traffic
) -> None:
    traffic.send()
    with agents.running("sink"):  # the rewarder has still to read what will be missing
        all_in(agents, "feedback", "inference_id", traffic.wanted)
    version = last_with_rows(agents, "feedback")
    commit = read_commit(agents.lake, "feedback", version)
    assert commit is not None
    Path(agents.lake.uri("feedback"), commit.added[0]).unlink()
    said = refused(agents, "rewarder")
    assert f"table feedback: 1 data files are missing, {commit.added[0]} first" in said
    assert f"`afterbay restore feedback {version - 1}`" in said
    restore(agents.lake, "feedback", version - 1)
    traffic.round()
    traffic.check()


@pytest.mark.parametrize("table", ["archive", "feedback", "reward", "experience"])
def test_a_table_taken_back_to_an_older_version_is_filled_again(
    agents: Agents, traffic: Traffic, table: str
) -> None:
    before = last_with_rows(agents, table) - 1
    restore(agents.lake, table, before)
    traffic.round()
    traffic.check()


def test_a_table_restored_by_another_tool_is_found_out_and_taken_back_whole(
    agents: Agents, traffic: Traffic
) -> None:
    before = last_with_rows(agents, "inference") - 1
    tables.open(agents.lake, "inference").restore(before)  # rows go back, positions do not
    kinds = {difference.kind for difference in prove(agents.lake, ["inference"]).differences}
    assert kinds == {"missing"}
    restore(agents.lake, "inference", before)
    traffic.round()
    traffic.check()
