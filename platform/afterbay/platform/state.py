"""What runs now: the supervisor's lock and its state file.

In:   a Home
Out:  `run/state.json` (written by the supervisor, read by every command); who supervises the home
Refuses: a second supervisor (BadState, naming the first)
Never: trusts the state file about what is alive: the lock is the kernel's, and a process id counts
      only together with the time its process was started
"""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from afterbay.platform.home import Home
from afterbay.platform.processes import lock_holder, wait_until
from afterbay.schemas.errors import BadState

_LEFTOVER_TIMEOUT_S = 15.0


class ProcessState(msgspec.Struct, frozen=True, kw_only=True):
    """One process, as the supervisor last saw it."""

    phase: str
    """waiting, starting, ready, backoff, ended or stopped."""
    pid: int | None
    started_ticks: int | None
    """Kernel's start time of that process; with the pid it names one process for good."""
    restarts: int
    last_exit: str
    """How it last ended by itself; empty if it never did."""
    metrics: str
    """Address of its /health and /metrics; empty if it has none."""
    log: str


class State(msgspec.Struct, frozen=True, kw_only=True):
    """What one supervisor runs."""

    pid: int
    """Its process id; the state is of now only if this process holds the supervisor's lock."""
    phase: str
    """starting, ready, stopping or stopped."""
    addresses: dict[str, str]
    """What clients connect to: gateway, kafka, dagster."""
    settings: dict[str, str]
    """The AFTERBAY_* variables its processes were given."""
    processes: dict[str, ProcessState]


def write_state(home: Home, state: State) -> None:
    """Replace state.json in one step."""
    draft = home.state.with_suffix(".new")
    draft.write_bytes(msgspec.json.format(msgspec.json.encode(state), indent=1) + b"\n")
    draft.replace(home.state)


def read_state(home: Home) -> State | None:
    """The state last written; None if there is none."""
    try:
        return msgspec.json.decode(home.state.read_bytes(), type=State)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise BadState(f"{home.state}: not a state file; delete it") from error


def supervisor_of(home: Home) -> int | None:
    """Process id of the supervisor that runs `home` now; None if nobody does."""
    return lock_holder(home.supervisor_lock)


@contextmanager
def supervising(home: Home) -> Iterator[None]:
    """Be the one supervisor of `home`; BadState naming the other one if there is one."""
    home.prepare()
    with home.supervisor_lock.open("a+") as handle:
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise BadState(
                f"{home.path} is run by process {supervisor_of(home)} already; `afterbay status` "
                "shows it, `afterbay down` stops it; or choose another --home"
            ) from error
        yield


def start_ticks(pid: int) -> int | None:
    """Start time of process `pid` in clock ticks since boot; None if there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8")
    except OSError:
        return None
    state, *fields = text.rpartition(")")[2].split()
    return None if state == "Z" else int(fields[18])


def leftovers(state: State) -> list[int]:
    """Processes of `state` that are still alive."""
    return [
        process.pid
        for process in state.processes.values()
        if process.pid is not None
        and process.started_ticks is not None
        and start_ticks(process.pid) == process.started_ticks
    ]


def clear_leftovers(home: Home) -> None:
    """Wait for what a killed supervisor left to end (it was told so by the kernel), else kill it.

    Only for whoever holds the supervisor's lock, or knows that nobody does.
    """
    state = read_state(home)
    if state is None or wait_until(lambda: not leftovers(state), _LEFTOVER_TIMEOUT_S):
        return
    for pid in leftovers(state):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not leftovers(state), _LEFTOVER_TIMEOUT_S)
