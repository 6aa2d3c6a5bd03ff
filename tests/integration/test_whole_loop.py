"""One installation with everything in it: messages and feedback in, a policy trained and promoted.

The public commands and HTTP alone, as a user has them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI

from afterbay.platform.demo import corpus
from afterbay.platform.demo.messages import write_messages
from afterbay.platform.home import Home
from afterbay.platform.state import leftovers, read_state, supervisor_of
from tests.support.agents import wait_until

ROOT = Path(__file__).parents[2]
AFTERBAY = (sys.executable, "-m", "afterbay.platform.cli")
SMALL = (
    *("--port", "0", "--broker-port", "0", "--dagster-port", "0"),
    *("--nodes", "1", "--broker-heap-mb", "512"),
)
MESSAGES = 140
QUICK = {
    "AFTERBAY_PARTITIONS": "2",
    "AFTERBAY_FLUSH_S": "0.5",
    "AFTERBAY_POLL_S": "0.2",
    "AFTERBAY_TRAIN_EVERY": "60",
    "AFTERBAY_GATE": "off",
    "AFTERBAY_CANARY_REWARDS": "20",
    "AFTERBAY_CANARY_S": "15",
    "AFTERBAY_CANARY_LEAST": "2",
    # ten standard errors: so few rewards must not decide
    "AFTERBAY_CANARY_Z": "10",
}


@dataclass
class Installed:
    """A running installation and its commands."""

    home: Path
    addresses: dict[str, str]

    def run(self, *arguments: str) -> Any:
        """The JSON that a command prints."""
        done = afterbay(self.home, *arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def count(self, sql: str) -> int:
        """One number from the tables."""
        (row,) = self.run("query", sql)
        (value,) = row.values()
        return int(value)


def afterbay(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AFTERBAY_")}
    return subprocess.run(
        [*AFTERBAY, *arguments, "--home", str(home)],
        env={**kept, **QUICK},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    home = tmp_path_factory.mktemp("whole") / "home"
    done = afterbay(home, "up", *SMALL, "--detach", "--json")
    assert done.returncode == 0, done.stderr
    yield Installed(home, json.loads(done.stdout)["addresses"])
    assert afterbay(home, "down").returncode == 0
    state = read_state(Home(home))
    assert state is not None
    assert not leftovers(state)
    assert supervisor_of(Home(home)) is None


@pytest.fixture
def client(installed: Installed) -> Iterator[OpenAI]:
    key = installed.run("apikey", "create", "test")["key"]
    base = f"{installed.addresses['gateway']}/v1"
    with OpenAI(base_url=base, api_key=key, max_retries=3) as client:
        yield client


def test_a_message_ends_in_a_better_policy(
    installed: Installed, client: OpenAI, tmp_path: Path
) -> None:
    tools = corpus.tools()
    messages = [message for message in corpus.make(3, 600) if not message.planted]
    write_messages(tmp_path / "messages.csv", messages[:200])
    (tmp_path / "tools.json").write_text(json.dumps(tools), "utf-8")
    files = ("--messages", str(tmp_path / "messages.csv"), "--tools", str(tmp_path / "tools.json"))
    first = afterbay(installed.home, "policy", "warmstart", *files, "--labels", "60")
    assert first.returncode == 0, first.stderr
    accepted = []

    def ask(number: int) -> None:
        message = messages[200 + number]
        answer: Any = client.chat.completions.create(
            model="bank-agent",
            messages=[{"role": "user", "content": message.text}],
            tools=[{"type": "function", "function": {"name": name}} for name in tools],
            extra_headers={"X-Afterbay-Session": f"session-{number}"},
        )
        (call,) = answer.choices[0].message.tool_calls
        right = call.function.name == message.tool
        opinion = {"inference_id": answer.id, "source": "person", "score": float(right)}
        client.post("/feedback", body=opinion, cast_to=object)
        accepted.append(answer.id.removeprefix("chatcmpl-"))

    def arms() -> dict[str, int]:
        rows = installed.run("query", "select action, count(*) as n from policy group by action")
        return {row["action"]: row["n"] for row in rows}

    wait_until("the first answer", lambda: _asked(ask))
    for number in range(1, MESSAGES):
        ask(number)
    wait_until("a canary", lambda: arms().get("canary", 0) == 1, 120)
    for number in range(MESSAGES, MESSAGES + 60):
        ask(number)
    wait_until("its promotion", lambda: arms().get("promoted", 0) == 2, 120)
    wait_until(
        "all in the tables",
        lambda: installed.count("select count(*) from experience_current") == len(accepted),
    )
    stored = [row["event_id"] for row in installed.run("query", "select event_id from inference")]
    assert sorted(stored) == sorted(accepted)
    assert installed.count("select count(distinct arm) from inference") == 2
    assert installed.count("select count(*) from loaded where error is null") == 2
    assert afterbay(installed.home, "prove").returncode == 0


def _asked(ask: Any) -> bool:
    try:
        ask(0)
    except Exception:  # the nodes are still loading, whatever the client calls it
        return False
    return True


def test_dagsters_page_answers_and_names_the_assets(installed: Installed) -> None:
    query = json.dumps({"query": "{assetNodes {assetKey {path} groupName}}"}).encode()
    connection = HTTPConnection(installed.addresses["dagster"].removeprefix("http://"), timeout=30)
    connection.request("POST", "/graphql", query, {"content-type": "application/json"})
    nodes = json.loads(connection.getresponse().read())["data"]["assetNodes"]
    connection.close()
    names = {node["assetKey"]["path"][-1] for node in nodes}
    wanted = {"replay_slice", "policy_snapshot", "policy_evaluation", "policy_promotion"}
    assert wanted <= names


def test_the_examples_run_as_they_are_written(installed: Installed) -> None:
    environ = {
        **os.environ,
        "AFTERBAY_URL": installed.addresses["gateway"],
        "AFTERBAY_KEY": installed.run("apikey", "create", "example")["key"],
    }
    tools = list(corpus.tools())[:2]
    for command in (
        ["examples/ask_and_rate.py", "I lost my card", *tools],
        ["examples/read_experience.py", str(installed.home)],
    ):
        done = subprocess.run(
            [sys.executable, *command],
            cwd=ROOT,
            env=environ,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr


def test_the_log_can_be_replayed_as_json_lines(installed: Installed) -> None:
    done = afterbay(installed.home, "replay", "--topic", "policy.snapshot.v2")
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["event"]["action"] for line in told][:2] == ["published", "promoted"]


def test_the_definitions_are_valid() -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "dagster", "definitions", "validate"),
            *("-m", "afterbay.dagster_defs.definitions"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
