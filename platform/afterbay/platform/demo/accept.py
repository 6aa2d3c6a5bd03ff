"""`python -m afterbay.platform.demo.accept`: does the loop learn, and only from rewards?

In:   the demo's environment variables; SEEDS (`1,2,3`)
Out:  one demo for each seed, one with shuffled rewards, each in a home of its own below
      `.afterbay/accept/`; a table, `.afterbay/accept/accept.json`
Exit: 0 if every promise below holds, 1 if not, 130 after Ctrl-C
Never: runs two demos at once
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from afterbay.platform.demo.settings import DemoSettings
from afterbay.schemas.errors import AfterbayError, BadSettings

LEAST_GREEDY = 0.50
"""Greedy accuracy of the warm start on held-out messages."""
LEAST_GAIN = 0.10
"""Held-out reward that the promoted policy is better by."""
MOST_CONTROL_GAIN = 0.02
"""Held-out reward that the last candidate of the control may be better by."""
_KEPT = "demo"


@dataclass(frozen=True, slots=True)
class Trial:
    """One demo of the acceptance. Made by `trials`, judged by `failures`."""

    name: str
    seed: int
    shuffled: bool


def trials(seeds: Sequence[int]) -> list[Trial]:
    """A demo for each seed, and the control on the first."""
    return [
        *(Trial(f"seed-{seed}", seed, shuffled=False) for seed in seeds),
        Trial(f"control-{seeds[0]}", seeds[0], shuffled=True),
    ]


def failures(trial: Trial, summary: Mapping[str, Any]) -> list[str]:
    """Promises that this run does not keep; empty if it keeps all."""
    reward, greedy = summary["heldout_reward"], summary["heldout_greedy"]
    gain = gain_of(summary)
    broken = list(summary["problems"])
    if gain is None:
        return [*broken, "nothing was measured on held-out messages"]
    if greedy["before"] < LEAST_GREEDY:
        broken.append(f"warm start: greedy accuracy {greedy['before']:.3f} < {LEAST_GREEDY}")
    if trial.shuffled and gain > MOST_CONTROL_GAIN:
        broken.append(
            f"control gained {gain:+.3f} > {MOST_CONTROL_GAIN} ({reward['before']:.3f} before)"
        )
    if not trial.shuffled and gain < LEAST_GAIN:
        broken.append(f"gain {gain:+.3f} < {LEAST_GAIN} ({reward['before']:.3f} before)")
    return broken


def gain_of(summary: Mapping[str, Any]) -> float | None:
    """Held-out reward after minus before; None if it was not measured."""
    before, after = summary["heldout_reward"]["before"], summary["heldout_reward"]["after"]
    return None if before is None or after is None else float(after - before)


def main() -> int:
    """Run all trials; the exit code."""
    console = Console()
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        settings = DemoSettings.from_env(os.environ)
        asked = trials(_seeds(os.environ))
        results = {trial: _run(trial, settings, console) for trial in asked}
    except AfterbayError as error:
        console.print(f"accept: {error}", markup=False)
        return 1
    except KeyboardInterrupt:
        return 130
    return _finish(results, settings, console)


def _seeds(environ: Mapping[str, str]) -> list[int]:
    text = environ.get("SEEDS") or "1,2,3"
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise BadSettings(f"SEEDS={text}: expected numbers, as 1,2,3") from None


def _run(trial: Trial, settings: DemoSettings, console: Console) -> dict[str, Any]:
    """One demo in a fresh home; its summary."""
    home = settings.home / "accept" / trial.name
    shutil.rmtree(home, ignore_errors=True)
    console.rule(trial.name)
    env = {
        **os.environ,
        "AFTERBAY_HOME": str(home),
        "SEED": str(trial.seed),
        "SHUFFLE_REWARDS": "1" if trial.shuffled else "",
        "KEEP": "",
    }
    demo = subprocess.Popen((sys.executable, "-m", "afterbay.platform.demo"), env=env)
    try:
        demo.wait()
    except KeyboardInterrupt:
        demo.wait()  # it got the same signal, and stops what it started
        raise
    summary = _summary(home)
    if summary["ok"]:
        _keep_results(home)
    return summary


def _summary(home: Path) -> dict[str, Any]:
    try:
        return dict(json.loads((home / _KEPT / "summary.json").read_text("utf-8")))
    except (OSError, ValueError):
        nothing = {"before": None, "after": None}
        return {
            "ok": False,
            "problems": ["the demo did not get to its summary"],
            "heldout_reward": nothing,
            "heldout_greedy": nothing,
        }


def _keep_results(home: Path) -> None:
    """A home holds gigabytes after some runs; what went well is told by its results."""
    for entry in home.iterdir():
        if entry.name != _KEPT and entry.is_dir():
            shutil.rmtree(entry, ignore_errors=True)


def _finish(
    results: Mapping[Trial, Mapping[str, Any]], settings: DemoSettings, console: Console
) -> int:
    table = Table("run", "greedy", "reward", "gain", "trainings", "p99 ms", "s", "verdict")
    broken = {trial: failures(trial, summary) for trial, summary in results.items()}
    for trial, summary in results.items():
        table.add_row(trial.name, *_cells(summary), "; ".join(broken[trial]) or "ok")
    console.print(table)
    told = {
        trial.name: {**summary, "gain": gain_of(summary), "broken": broken[trial]}
        for trial, summary in results.items()
    }
    (settings.home / "accept" / "accept.json").write_text(json.dumps(told, indent=1) + "\n")
    return 1 if any(broken.values()) else 0


def _cells(summary: Mapping[str, Any]) -> list[str]:
    gain = gain_of(summary)
    if gain is None:
        return ["–"] * 6
    reward, greedy = summary["heldout_reward"], summary["heldout_greedy"]
    return [
        f"{greedy['before']:.3f} → {greedy['after']:.3f}",
        f"{reward['before']:.3f} → {reward['after']:.3f}",
        f"{gain:+.3f}",
        str(summary["trainings"]),
        str(summary["latency_ms"]["p99"]),
        str(summary["seconds"]),
    ]


if __name__ == "__main__":
    sys.exit(main())
