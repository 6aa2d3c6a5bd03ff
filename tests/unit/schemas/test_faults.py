"""Crash points kill the process at the place and time that were asked for, and only then."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import os
from afterbay.schemas.faults import crash_points
crash_points.arm(os.environ)
for turn in range(3):
    crash_points.reach("other")
    print(turn, flush=True)
    crash_points.reach("here")
"""


def run(tmp_path: Path, at: str | None, kind: str = "CRASH") -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "AFTERBAY_CRASH_REPORT": str(tmp_path / "hits")}
    if at:
        environ[f"AFTERBAY_{kind}_AT"] = at
    return subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environ, capture_output=True, text=True, check=False
    )


def test_it_dies_the_nth_time_and_reports_the_hit(tmp_path: Path) -> None:
    done = run(tmp_path, "here:2")
    assert done.returncode == -signal.SIGKILL
    assert done.stdout.split() == ["0", "1"]
    assert (tmp_path / "hits").read_text() == "here\n"


def test_it_raises_the_nth_time_and_reports_the_hit(tmp_path: Path) -> None:
    done = run(tmp_path, "here:2", "FAIL")
    assert done.returncode == 1
    assert done.stdout.split() == ["0", "1"]
    assert "InjectedFault: a test asked for a failure at here" in done.stderr
    assert (tmp_path / "hits").read_text() == "here\n"


def test_unarmed_it_lives(tmp_path: Path) -> None:
    assert run(tmp_path, None).returncode == 0
    assert not (tmp_path / "hits").exists()
