"""Commands that the demo starts, and that it always stops what it started.

The program here is a script that writes down how it was called and answers what it is told to.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest
from rich.console import Console

from afterbay.platform.demo.commands import Afterbay, CommandFailed
from afterbay.platform.demo.display import Display
from afterbay.platform.demo.run import Demo
from afterbay.platform.demo.settings import DemoSettings

_SCRIPT = """#!{python}
import json, pathlib, sys, time
here = pathlib.Path(__file__).parent
name = sys.argv[1]
with (here / "called").open("a") as log:
    log.write(" ".join(sys.argv[1:3]) + "\\n")
answer = json.loads((here / "answers.json").read_text()).get(name, {{}})
for line in answer.get("lines", []):
    print(json.dumps(line), flush=True)
sys.stderr.write(answer.get("error", ""))
time.sleep(answer.get("sleep", 0))
sys.exit(answer.get("code", 0))
"""


class Script:
    """The program of one test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "afterbay"
        self.path.write_text(_SCRIPT.format(python=sys.executable))
        self.path.chmod(0o700)

    def answers(self, **answers: dict[str, object]) -> Afterbay:
        """A command line that gives these answers, by command."""
        (self.folder / "answers.json").write_text(json.dumps(answers))
        return Afterbay({}, program=str(self.path))

    @property
    def called(self) -> list[str]:
        """Commands in the order they were started, with their first argument."""
        log = self.folder / "called"
        return log.read_text().splitlines() if log.exists() else []


@pytest.fixture
def script(tmp_path: Path) -> Script:
    return Script(tmp_path)


def test_the_last_line_of_output_is_the_json(script: Script) -> None:
    afterbay = script.answers(query={"lines": ["a notice", [{"n": 3}]]})
    assert asyncio.run(afterbay.query("select 3 as n")) == [{"n": 3}]


def test_a_command_that_fails_tells_its_own_words(script: Script) -> None:
    afterbay = script.answers(prove={"code": 1, "error": "no such home"})
    with pytest.raises(CommandFailed, match=r"(?s)`afterbay prove .*code 1.*no such home"):
        asyncio.run(afterbay.text("prove"))


def test_a_command_that_may_fail_gives_what_it_printed(script: Script) -> None:
    afterbay = script.answers(prove={"code": 1, "lines": [{"ok": False}]})
    assert asyncio.run(afterbay.json("prove", may_fail=True)) == {"ok": False}


def test_lines_come_as_they_are_printed_and_the_command_is_ended(script: Script) -> None:
    afterbay = script.answers(status={"lines": [1, 2], "sleep": 60})

    async def first_two() -> list[object]:
        found: list[object] = []
        looks = afterbay.lines("status")
        async for look in looks:
            found.append(look)
            if len(found) == 2:
                break
        await looks.aclose()
        return found

    assert asyncio.run(asyncio.wait_for(first_two(), 20)) == [1, 2]


def _demo(script: Script, afterbay: Afterbay) -> Demo:
    settings = DemoSettings(home=script.folder / "home", env={})
    return Demo(settings, Display(Console(quiet=True)), afterbay)


def _up() -> dict[str, object]:
    addresses = {"gateway": "http://127.0.0.1:1", "kafka": "127.0.0.1:2"}
    return {"lines": [{"pid": 1, "addresses": addresses}]}


def test_what_was_started_is_stopped_when_a_later_command_fails(script: Script) -> None:
    afterbay = script.answers(up=_up(), apikey={"code": 1, "error": "disk full"})
    with pytest.raises(CommandFailed, match="disk full"):
        asyncio.run(_demo(script, afterbay).run())
    assert script.called == ["up --detach", "apikey create", "down"]


def test_what_somebody_else_runs_is_not_stopped(script: Script) -> None:
    afterbay = script.answers(up={"code": 1, "error": "is run by process 12 already"})
    with pytest.raises(CommandFailed, match="process 12"):
        asyncio.run(_demo(script, afterbay).run())
    assert script.called == ["up --detach"]


def test_ctrl_c_stops_everything_even_if_it_comes_twice(script: Script) -> None:
    afterbay = script.answers(
        up=_up(), apikey={"lines": [{"key": "k"}]}, policy={"sleep": 60}, down={"sleep": 0.5}
    )

    async def interrupted() -> None:
        task = asyncio.ensure_future(_demo(script, afterbay).run())
        for awaited in ("policy warmstart", "down"):
            while awaited not in script.called:
                await asyncio.sleep(0.02)
            task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(asyncio.wait_for(interrupted(), 40))
    assert script.called[-1] == "down"
