"""Run an agent: a process with a name, a state, a port, and a way to stop.

In:   an agent (`open`, `step`, `drain`, `close`), settings, SIGTERM or SIGINT
Out:  its steps until it is told to stop; /health and /metrics; an exit code that says why it ended
Refuses: to go on after Fenced, OffsetGap, BadState or BadSettings; a restart would not mend those
Never: reads the environment; busy-waits; loses an error

    starting -> running <-> backing_off -> draining -> stopped | failed
"""

from __future__ import annotations

import logging
import os
import select
import signal
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from types import FrameType
from typing import Protocol

from afterbay.schemas.errors import (
    AfterbayError,
    BadSettings,
    BadState,
    Fenced,
    OffsetGap,
    OutcomeUnknown,
    Retryable,
)
from afterbay.streams.metrics import Metrics
from afterbay.streams.port import AgentPort

log = logging.getLogger("afterbay.agent")

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_FENCED = 3
"""Another owner has taken over; starting again would only take the work back."""
EXIT_STATE = 4
"""Something that a person has to look at; starting again does not help."""


class Agent(Protocol):
    """Work that comes in steps. Every call is made from one thread."""

    @property
    def name(self) -> str:
        """Name in logs, metrics and the status."""
        ...

    def open(self) -> None:
        """Take up the position that the output holds; called again after OutcomeUnknown."""
        ...

    def step(self) -> bool:
        """Do a bounded piece of work; True if there was any, so that there may be more."""
        ...

    def drain(self) -> None:
        """Finish what was taken in; the process is about to stop."""
        ...

    def close(self) -> None:
        """Let go of everything; safe in any state, twice too."""
        ...


class State(StrEnum):
    """Where an agent is in its life."""

    STARTING = "starting"
    RUNNING = "running"
    BACKING_OFF = "backing_off"
    DRAINING = "draining"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """How an agent is run. Made by entry points."""

    metrics_port: int | None = None
    """Port of /health and /metrics on 127.0.0.1; 0 = any free one, None = none."""
    idle_s: float = 0.05
    """Pause after a step that found nothing; the agent's own waits come on top."""
    backoff_s: float = 0.1
    """First pause after a Retryable error; doubles up to `backoff_max_s`."""
    backoff_max_s: float = 5.0


class StopFlag:
    """Set by a signal handler, waited for by the very thread that the handler interrupts.

    An Event deadlocks there: `set` takes the lock that the interrupted `wait` may hold. A pipe has
    none.
    """

    def __init__(self) -> None:
        self._set = False
        self._read, self._write = os.pipe()
        weakref.finalize(self, os.closerange, self._read, self._read + 1)
        weakref.finalize(self, os.closerange, self._write, self._write + 1)

    def set(self) -> None:
        """From any thread or signal handler."""
        if not self._set:
            self._set = True
            os.write(self._write, b"!")

    def is_set(self) -> bool:
        """Whether it was set."""
        return self._set

    def wait(self, seconds: float) -> None:
        """Return when it is set, after `seconds` at the latest."""
        select.select([self._read], [], [], seconds)


class Runner:
    """One agent's life. `stop` may be called from any thread or signal handler."""

    def __init__(
        self, agent: Agent, settings: AgentSettings, metrics: Metrics | None = None
    ) -> None:
        self._agent = agent
        self._settings = settings
        self._metrics = metrics or Metrics(agent.name)
        self._stop = StopFlag()
        self._opened = False
        self._steps = self._metrics.counter("steps", "Steps that did work.")
        self._errors = self._metrics.counter("errors", "Errors, by type.", ("type",))
        self.state = State.STARTING
        self.port: int | None = None
        """Port really listened on; None if there is none."""

    def stop(self) -> None:
        """Ask for a drain and an orderly end."""
        self._stop.set()

    def run(self) -> int:
        """Live until stopped or beyond help; the exit code."""
        with AgentPort.serving(self._settings.metrics_port, self.status, self._metrics) as port:
            self.port = port
            log.info("%s starting, port %s", self._agent.name, port)
            code = self._guarded(self._live)
            if code == EXIT_OK:
                code = self._guarded(self._end)
            self._close()
            self._move(State.STOPPED if code == EXIT_OK else State.FAILED)
            return code

    def status(self) -> dict[str, str]:
        """What /health says."""
        return {"agent": self._agent.name, "state": self.state.value}

    def _live(self) -> None:
        self._retrying(self._open)
        while not self._stop.is_set():
            if self._retrying(self._agent.step):
                self._steps.inc()
            else:
                self._stop.wait(self._settings.idle_s)

    def _end(self) -> None:
        self._move(State.DRAINING)
        if self._opened:  # else its position is not known, and the next start takes it up
            self._agent.drain()

    def _open(self) -> None:
        self._agent.open()
        self._opened = True

    def _retrying(self, call: Callable[[], bool | None]) -> bool:
        """Result of `call`, made again after errors that allow it, until told to stop."""
        pause = self._settings.backoff_s
        while not self._stop.is_set():
            try:
                done = bool(call())
            except OutcomeUnknown as error:
                self._note(error)
                self._agent.close()
                self._opened = False
                call = self._reopened(call)
            except Retryable as error:
                self._note(error)
            else:
                self._move(State.RUNNING)
                return done
            self._move(State.BACKING_OFF)
            self._stop.wait(pause)
            pause = min(2 * pause, self._settings.backoff_max_s)
        return False

    def _reopened(self, call: Callable[[], bool | None]) -> Callable[[], bool | None]:
        """`open`, then `call`: the output tells what the call of unknown outcome has done."""

        def again() -> bool | None:
            self._open()
            return None if call == self._open else call()

        return again

    def _guarded(self, phase: Callable[[], None]) -> int:
        try:
            phase()
        except Fenced as error:
            self._note(error)
            return EXIT_FENCED
        except (OffsetGap, BadState, BadSettings) as error:
            self._note(error)
            return EXIT_STATE
        except AfterbayError as error:
            self._note(error)
            return EXIT_FAILED
        except Exception:  # the process's last word; the traceback names code, never a payload
            self._errors.labels("unexpected").inc()
            log.exception("%s failed", self._agent.name)
            return EXIT_FAILED
        return EXIT_OK

    def _close(self) -> None:
        try:
            self._agent.close()
        except AfterbayError as error:
            self._note(error)

    def _note(self, error: AfterbayError) -> None:
        self._errors.labels(type(error).__name__).inc()
        log.warning("%s: %s: %s", self._agent.name, type(error).__name__, error)

    def _move(self, state: State) -> None:
        if state is not self.state:
            self.state = state
            log.info("%s %s", self._agent.name, state.value)


def run(agent: Agent, settings: AgentSettings, metrics: Metrics | None = None) -> int:
    """Run `agent` in this process until SIGTERM or SIGINT; the exit code."""
    runner = Runner(agent, settings, metrics)

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        runner.stop()

    before = {n: signal.signal(n, on_signal) for n in (signal.SIGTERM, signal.SIGINT)}
    try:
        return runner.run()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def log_to_stderr(level: int = logging.INFO) -> None:
    """One line an entry, with the time in UTC; for entry points."""
    logging.basicConfig(
        level=level, format="%(asctime)s %(levelname)s %(name)s %(message)s", force=True
    )
