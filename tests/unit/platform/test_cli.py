"""Commands that only read: over a lake that is there, with no broker and nothing running."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from afterbay.lakehouse import tables
from afterbay.lakehouse.lake import Lake
from afterbay.platform.cli.app import app
from afterbay.schemas.errors import BadSettings
from tests.support.whole_lake import WholeLake, filled


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> WholeLake:
    """A home whose lake holds events of every topic."""
    return filled(Lake(str(tmp_path_factory.mktemp("home") / "lake")))


@pytest.fixture
def home(whole: WholeLake) -> str:
    """Its folder."""
    return str(Path(whole.lake.root).parent)


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(app, arguments)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_help_names_every_command_and_imports_nothing_heavy() -> None:
    code = (
        "import sys; from afterbay.platform.cli.app import app\n"
        "heavy = {'torch', 'polars', 'duckdb', 'deltalake', 'pyarrow', 'dagster', 'zmq'}\n"
        "print(sorted(heavy & sys.modules.keys()))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
    shown = run("--help").stdout
    for command in (
        "up",
        "down",
        "status",
        "query",
        "replay",
        "prove",
        "restore",
        "policy",
        "apikey",
        "deadletter",
        "rewind",
    ):
        assert command in shown


def test_query_gives_rows_to_people_and_objects_to_programs(home: str, whole: WholeLake) -> None:
    sql = "select count(*) as n, 'nan'::float as odd from feedback"
    count = len(whole.rows["feedback"])
    assert run("query", sql, "--home", home).stdout.split() == ["n", "odd", str(count), "nan"]
    assert json.loads(run("query", sql, "--home", home, "--json").stdout) == [
        {"n": count, "odd": None}
    ]


def test_a_query_that_is_wrong_says_where(home: str) -> None:
    with pytest.raises(BadSettings, match=r"query: .*no_such_table"):
        run("query", "select * from no_such_table", "--home", home)


def test_a_query_cannot_write_or_read_files(home: str, tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match="query: "):
        run("query", f"copy (select 1) to '{tmp_path / 'out.csv'}'", "--home", home)
    assert not (tmp_path / "out.csv").exists()


def test_replay_prints_each_event_of_the_range_as_one_json_line(
    home: str, whole: WholeLake
) -> None:
    days = ("--from", "2026-03-01", "--to", "2026-03-02", "--home", home)
    lines = run("replay", *days).stdout
    events = [json.loads(line) for line in lines.splitlines()]
    sent = {row["event_id"] for rows in whole.rows.values() for row in rows if "event_id" in row}
    got = [event["event"]["event_id"] for event in events if event["kind"] == "event"]
    assert set(got) <= sent
    assert len(got) == len(set(got)) > 0
    one = run("replay", *days, "--topic", "feedback.received.v2").stdout
    assert {json.loads(line)["topic"] for line in one.splitlines()} == {"feedback.received.v2"}


@pytest.mark.parametrize(
    ("option", "value"), [("--from", "yesterday"), ("--to", "2026-13-01"), ("--topic", "turns")]
)
def test_replay_refuses_what_it_does_not_understand_by_option(
    home: str, option: str, value: str
) -> None:
    with pytest.raises(BadSettings, match=option):
        run("replay", option, value, "--home", home)


def test_prove_says_what_it_looked_at_and_exits_with_0(home: str, whole: WholeLake) -> None:
    result = run("prove", "--home", home, "--json")
    proof = json.loads(result.stdout)
    assert (result.exit_code, proof["ok"], proof["differences"]) == (0, True, [])
    assert proof["counts"]["feedback"] == len(whole.rows["feedback"])


def test_prove_exits_with_1_and_names_the_table_when_a_row_is_gone(tmp_path: Path) -> None:
    whole = filled(Lake(str(tmp_path / "lake")))
    first = whole.rows["feedback"][0]["event_id"]
    tables.open(whole.lake, "feedback").delete(f"event_id = '{first}'")
    result = run("prove", "--home", str(tmp_path))
    assert result.exit_code == 1
    assert "feedback: 1 missing" in result.stdout


def test_restore_takes_rows_and_positions_back_so_that_nothing_counts_as_missing(
    tmp_path: Path,
) -> None:
    whole = filled(Lake(str(tmp_path / "lake")))
    newest = tables.open(whole.lake, "loaded").version()
    result = run("restore", "loaded", "0", "--home", str(tmp_path))
    assert f"table loaded is at version {newest + 1}, which is version 0 again" in result.stdout
    proof = json.loads(run("prove", "loaded", "--home", str(tmp_path), "--json").stdout)
    assert (proof["ok"], proof["counts"]["loaded"]) == (True, 0)
    assert proof["behind"]["loaded"] == len(whole.rows["loaded"])


def test_status_of_a_home_at_rest_shows_tables_and_says_what_is_away(home: str) -> None:
    found = json.loads(run("status", "--home", home, "--json").stdout)
    assert (found["running"], found["phase"], found["processes"]) == (False, "stopped", [])
    assert found["data"]["tables"]["feedback"] > 0
    assert found["data"]["lag"] == {"sink": None, "rewarder": None, "bucketer": 0}
    assert "afterbay up" in found["data"]["problems"][0]


def test_an_api_key_is_shown_once_and_listed_without_its_text(tmp_path: Path) -> None:
    new = json.loads(run("apikey", "create", "demo", "--home", str(tmp_path), "--json").stdout)
    listed = run("apikey", "list", "--home", str(tmp_path), "--json").stdout
    assert [key["id"] for key in json.loads(listed)] == [new["id"]]
    assert new["key"] not in listed


def test_dead_letters_are_listed_and_counted_without_a_broker(home: str, whole: WholeLake) -> None:
    found = json.loads(run("deadletter", "list", "--home", home, "--json").stdout)
    rows = whole.rows["deadletter"]
    assert {x["event_id"] for x in found["letters"]} == {row["event_id"] for row in rows}
    assert sum(row["count"] for row in found["summary"]) == len(rows)
    one = run("deadletter", "show", rows[0]["event_id"], "--home", home).stdout
    assert rows[0]["reason"] in one
    assert "contents" not in one


@pytest.mark.parametrize(
    "arguments",
    [
        ("redrive",),
        ("redrive", "some-id", "--topic", "feedback.received.v2", "--reason", "magic"),
        ("redrive", "--topic", "feedback.received.v2"),
        ("redrive", "no-letter"),
        ("show", "no-letter"),
        ("list", "--topic", "turns"),
    ],
)
def test_dead_letters_that_are_not_named_well_are_refused(
    home: str, arguments: tuple[str, ...]
) -> None:
    with pytest.raises(BadSettings):
        run("deadletter", *arguments, "--home", home)


def test_a_table_in_order_has_nothing_to_rewind(home: str) -> None:
    assert "nothing to move back" in run("rewind", "--table", "feedback", "--home", home).stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("--table", "turns"),
        ("--table", "feedback", "--to", "3"),
        ("--table", "feedback", "--topic", "feedback.received.v2", "--partition", "0"),
    ],
)
def test_a_rewind_that_says_too_little_is_refused(home: str, arguments: tuple[str, ...]) -> None:
    with pytest.raises(BadSettings):
        run("rewind", *arguments, "--home", home)


def test_an_unknown_agent_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match="known agents: gateway, scheduler"):
        run("agent", "run", "nobody")


def test_an_error_is_one_line_that_says_what_to_do(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "afterbay.platform.cli", "query", "select 1"],
        env={"AFTERBAY_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("afterbay: table ")
    assert "afterbay up" in done.stderr
    assert done.stderr.count("\n") == 1
