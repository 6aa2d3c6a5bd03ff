"""Agents as processes of their own, forked from a server that has imported them already.

In:   an agent's name, its environment, its log file
Out:  `Actor`: a process that can be killed, stopped, let go on, and tells how it ended
Never: outlives the process that started it

A fork starts in milliseconds where a new interpreter takes half a second of imports. The server has
run nothing but imports, so no client, runtime or lock of it is in the child.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path

PR_SET_PDEATHSIG = 1
_IMPORTED = [
    "tests.faults.actors",
    "afterbay.platform.agents",
    "afterbay.streams.sink",
    "afterbay.streams.rewarder",
    "afterbay.streams.bucketer",
]
_context = multiprocessing.get_context("forkserver")


def prepare() -> None:
    """Say what the server imports; before the first agent starts."""
    _context.set_forkserver_preload(_IMPORTED)


def _enter(agent: str, environ: Mapping[str, str], out: str) -> None:
    """Become the agent; the child's first call."""
    from afterbay.platform.agents import run_agent

    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    handle = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    sys.exit(run_agent(agent, environ))


@dataclass
class Actor:
    """One agent's process."""

    slot: str
    fault: str
    """As in `Step.fault`."""
    hit: Path
    """File that is there once its fault was hit."""
    process: ForkServerProcess
    stopped: bool = False
    asked: bool = False
    """True once somebody told it to end."""

    @classmethod
    def start(cls, slot: str, fault: str, environ: Mapping[str, str], run: Path) -> Actor:
        """The agent of `slot`, with its log and hit file in `run`; `fault` is armed in it."""
        agent = slot.partition("-")[0]
        hit = run / f"{slot}.{len(list(run.glob(f'{slot}.*')))}.hit"
        how, _, at = fault.partition(":")
        armed = {f"AFTERBAY_{how.upper()}_AT": at} if fault else {}
        whole = {**environ, **armed, "AFTERBAY_CRASH_REPORT": str(hit)}
        log = str(hit.with_suffix(".log"))
        process = _context.Process(target=_enter, args=(agent, whole, log), name=slot)
        process.start()
        Path(log).touch()
        return cls(slot, fault, hit, process)

    @property
    def kind(self) -> str:
        """Name of the agent in the slot."""
        return self.slot.partition("-")[0]

    @property
    def exit_code(self) -> int | None:
        """How it ended; None while it lives."""
        return self.process.exitcode

    @property
    def was_hit(self) -> bool:
        """Whether its fault happened."""
        return self.hit.exists()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, if it still lives."""
        if self.exit_code is None and self.process.pid is not None:
            os.kill(self.process.pid, number)
            self.asked |= number in (signal.SIGKILL, signal.SIGTERM)
            self.stopped = number == signal.SIGSTOP

    def wait(self, within_s: float) -> int | None:
        """Its exit code; None if it does not end in time."""
        self.process.join(within_s)
        return self.exit_code

    def end(self) -> None:
        """Kill it, whatever it does."""
        self.signal(signal.SIGKILL)
        self.process.join()
