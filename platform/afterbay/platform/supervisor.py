"""Keep a set of processes running: start in order, restart what crashed, stop in reverse order.

In:   ProcessSpecs
Out:  running processes; `run/state.json` (addresses, process ids); a log file for each
Refuses: a home that another supervisor holds (names its process); a process that ends three times
      before it was ever ready (its last log lines are in the error)
Never: leaves a process behind: `stop` kills what does not stop, and a killed supervisor's children
      die with it (leash.py)
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from afterbay.platform.home import Home
from afterbay.platform.processes import Child, ProcessSpec, describe_exit
from afterbay.platform.state import ProcessState, State, start_ticks, write_state
from afterbay.schemas.errors import BadSettings, Unavailable

_NO_USE_TO_RESTART = (3, 4)
"""Exit codes of `streams.agent`: fenced, and a state that a person must look at. Tried again all
the same, but slowly: the person should not have to come back and restart it."""
_TRIES_BEFORE_READY = 3
_FIRST_DELAY_S = 0.2
_LONGEST_DELAY_S = 15.0
_STEADY_AFTER_S = 30.0
_TICK_S = 0.05
_PROBE_EVERY_S = 0.1


@dataclass(slots=True)
class _Managed:
    """One spec and how it is doing."""

    spec: ProcessSpec
    child: Child | None = None
    phase: str = "waiting"
    """waiting, starting, ready, backoff, ended (a job that is done, or gave up)."""
    since: float = 0.0
    """Monotonic time of the last change of phase."""
    next_probe: float = 0.0
    restarts: int = 0
    failures: int = 0
    """Times it ended in a row without having been steady in between."""
    was_ready: bool = False
    last_exit: str = ""

    def move(self, phase: str, now: float) -> None:
        """Enter a phase."""
        self.phase, self.since = phase, now

    @property
    def satisfied(self) -> bool:
        """Whether what comes after it may start (a restarting one does not hold others back)."""
        return self.was_ready


class Supervisor:
    """Runs the processes of one home; all calls from one thread."""

    def __init__(
        self,
        home: Home,
        specs: Sequence[ProcessSpec],
        *,
        environ: Mapping[str, str],
        addresses: Mapping[str, str],
        metrics: Mapping[str, str],
        settings: Mapping[str, str],
        notice: Callable[[str], None],
    ) -> None:
        """`notice` is told what a person wants to know: ready, crashed, started again."""
        self._home = home
        self._managed = {spec.name: _Managed(spec) for spec in in_order(specs)}
        self._environ = environ
        self._addresses = addresses
        self._metrics = metrics
        self._settings = settings
        self._notice = notice
        self._phase = "starting"

    def start(self, stop_asked: Callable[[], bool], timeout_s: float = 300.0) -> bool:
        """Start all and return when all are ready; False if it was asked to stop before."""
        end = time.monotonic() + timeout_s
        self.write()
        while not all(managed.satisfied for managed in self._managed.values()):
            if stop_asked():
                return False
            if time.monotonic() > end:
                raise Unavailable(f"not ready after {timeout_s:g} s: {self._unready()}")
            self.step()
            time.sleep(_TICK_S)
        self._phase = "ready"
        self.write()
        return True

    def run(self, stop_asked: Callable[[], bool]) -> None:
        """Watch and restart until asked to stop."""
        while not stop_asked():
            self.step()
            time.sleep(_TICK_S)

    def step(self) -> None:
        """Look at every process once; start, probe or restart as it needs."""
        before = self._picture()
        for managed in self._managed.values():
            self._advance(managed, time.monotonic())
        if self._picture() != before:
            self.write()

    def stop(self) -> None:
        """Stop all, dependants first; returns when no process is left. Safe to repeat."""
        self._phase = "stopping"
        self.write()
        for layer in reversed(layers([managed.spec for managed in self._managed.values()])):
            running = [c for name in layer if (c := self._managed[name].child) is not None]
            for child in running:
                child.ask_to_stop()
            for child in running:
                child.stop()
        self._phase = "stopped"
        for managed in self._managed.values():
            managed.move("stopped", time.monotonic())
        self.write()

    def write(self) -> None:
        """Bring state.json up to date."""
        state = State(
            pid=os.getpid(),
            phase=self._phase,
            addresses=dict(self._addresses),
            settings=dict(self._settings),
            processes={name: self._state_of(m) for name, m in self._managed.items()},
        )
        write_state(self._home, state)

    def _advance(self, managed: _Managed, now: float) -> None:
        match managed.phase:
            case "waiting":
                if all(self._managed[name].satisfied for name in managed.spec.after):
                    self._launch(managed, now)
            case "backoff":
                if now >= managed.next_probe:
                    managed.restarts += 1
                    self._launch(managed, now)
            case "starting":
                self._watch_start(managed, now)
            case "ready":
                if managed.child is not None and managed.child.exit_code is not None:
                    self._ended(managed, managed.child, now)

    def _launch(self, managed: _Managed, now: float) -> None:
        managed.child = Child(managed.spec, self._home.log(managed.spec.name), self._environ)
        managed.next_probe = now
        managed.move("starting", now)

    def _watch_start(self, managed: _Managed, now: float) -> None:
        child, spec = managed.child, managed.spec
        if child is None or child.exit_code is not None:
            if child is not None:
                self._ended(managed, child, now)
            return
        if now < managed.next_probe:
            return
        if _is_ready(spec):
            self._became_ready(managed, now)
        elif now - managed.since > spec.ready_timeout_s:
            child.kill()
            self._ended(managed, child, now)
        managed.next_probe = time.monotonic() + _PROBE_EVERY_S

    def _became_ready(self, managed: _Managed, now: float) -> None:
        again = " again" if managed.was_ready else ""
        self._notice(f"{managed.spec.name} is ready{again} ({now - managed.since:.1f} s)")
        managed.was_ready = True
        managed.move("ready", now)

    def _ended(self, managed: _Managed, child: Child, now: float) -> None:
        code = child.exit_code
        child.kill()  # what is left of its group
        managed.last_exit = describe_exit(code if code is not None else 0)
        if not managed.spec.restart and code == 0:
            managed.was_ready = True
            managed.move("ended", now)
            return
        managed.failures = 1 if now - managed.since > _STEADY_AFTER_S else managed.failures + 1
        self._refuse_to_go_on(managed, child)
        if not managed.spec.restart:
            managed.move("ended", now)
            return
        delay = min(_LONGEST_DELAY_S, _FIRST_DELAY_S * 2 ** (managed.failures - 1))
        if code in _NO_USE_TO_RESTART:
            delay = _LONGEST_DELAY_S
        self._notice(
            f"{managed.spec.name} ended by {managed.last_exit}; starting it again in {delay:.1f} s "
            f"(log: {child.log})"
        )
        managed.next_probe = now + delay
        managed.move("backoff", now)

    def _refuse_to_go_on(self, managed: _Managed, child: Child) -> None:
        hopeless = not managed.spec.restart or child.exit_code in _NO_USE_TO_RESTART
        tries = 1 if hopeless else _TRIES_BEFORE_READY
        if not managed.was_ready and managed.failures >= tries:
            raise Unavailable(
                f"{managed.spec.name} cannot be started: {managed.last_exit}, {managed.failures} "
                f"times. Last lines of {child.log}:\n{child.log_tail()}"
            )

    def _state_of(self, managed: _Managed) -> ProcessState:
        child = managed.child
        alive = child is not None and child.exit_code is None
        pid = child.pid if child is not None and alive else None
        return ProcessState(
            phase=managed.phase,
            pid=pid,
            started_ticks=start_ticks(pid) if pid is not None else None,
            restarts=managed.restarts,
            last_exit=managed.last_exit,
            metrics=self._metrics.get(managed.spec.name, ""),
            log=str(self._home.log(managed.spec.name)),
        )

    def _picture(self) -> list[tuple[str, int, int | None]]:
        return [
            (m.phase, m.restarts, m.child.pid if m.child else None) for m in self._managed.values()
        ]

    def _unready(self) -> str:
        return ", ".join(
            f"{name} ({m.phase}; log: {self._home.log(name)})"
            for name, m in self._managed.items()
            if not m.satisfied
        )


def _is_ready(spec: ProcessSpec) -> bool:
    if spec.ready is None:
        return spec.restart  # a job is done when it has ended
    return spec.ready()


def in_order(specs: Sequence[ProcessSpec]) -> list[ProcessSpec]:
    """`specs`, each behind those it comes after; BadSettings for an unknown name or a circle."""
    by_name = {spec.name: spec for spec in specs}
    if len(by_name) != len(specs):
        raise BadSettings("two processes have one name")
    return [by_name[name] for layer in layers(specs) for name in layer]


def layers(specs: Sequence[ProcessSpec]) -> list[list[str]]:
    """Names in layers: each comes after members of earlier layers only."""
    waiting = {spec.name: set(spec.after) for spec in specs}
    found: list[list[str]] = []
    while waiting:
        layer = [name for name, after in waiting.items() if not after & waiting.keys()]
        unknown = {a for after in waiting.values() for a in after} - {s.name for s in specs}
        if unknown or not layer:
            raise BadSettings(
                f"processes {sorted(waiting)} wait for each other, or for {sorted(unknown)}, which "
                "nobody starts"
            )
        found.append(layer)
        for name in layer:
            del waiting[name]
    return found
