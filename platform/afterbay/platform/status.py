"""What runs: processes, addresses, rings, and how far the data have come.

In:   a home: the supervisor's lock and state file, the rings, /health of each process
Out:  `Status`
Never: believes the state file about what is alive; changes anything
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from afterbay.platform.home import Home
from afterbay.platform.processes import healthy
from afterbay.platform.progress import Looker, Progress
from afterbay.platform.ring import L1, Ring
from afterbay.platform.state import ProcessState, State, leftovers, read_state, supervisor_of
from afterbay.schemas.errors import AfterbayError


@dataclass(frozen=True, slots=True)
class ProcessStatus:
    """One process. Made by `processes_of`, shown by `afterbay status`."""

    name: str
    phase: str
    """As the supervisor sees it; `gone` if its supervisor is not there any more."""
    healthy: bool | None
    """Answer of its /health; None if it has none."""
    pid: int | None
    restarts: int
    last_exit: str
    metrics: str
    log: str


@dataclass(frozen=True, slots=True)
class RingStatus:
    """One L1 ring."""

    name: str
    used: int
    """Bytes not yet freed by the flusher."""
    capacity: int
    fill: float
    """used / capacity."""


@dataclass(frozen=True, slots=True)
class Status:
    """One look at an installation."""

    home: str
    running: bool
    supervisor: int | None
    """Its process id."""
    phase: str
    """starting, ready, stopping or stopped; `killed` if the supervisor ended without a word."""
    addresses: dict[str, str]
    processes: tuple[ProcessStatus, ...]
    rings: tuple[RingStatus, ...]
    data: Progress


def status_of(home: Home, looker: Looker) -> Status:
    """Look once."""
    state, holder = read_state(home), supervisor_of(home)
    ours = state is not None and holder is not None
    return Status(
        home=str(home.path),
        running=holder is not None,
        supervisor=holder,
        phase=_phase(state, holder),
        addresses=dict(state.addresses) if state is not None and ours else {},
        processes=processes_of(state, holder) if state is not None else (),
        rings=rings_of(home),
        data=looker.look(),
    )


def processes_of(state: State, holder: int | None) -> tuple[ProcessStatus, ...]:
    """Every process of `state`, asked for its health all at once."""
    alive = set(leftovers(state))
    with ThreadPoolExecutor(max_workers=8) as pool:
        pairs = state.processes.items()
        return tuple(pool.map(lambda pair: _process(*pair, alive=alive, holder=holder), pairs))


def rings_of(home: Home) -> tuple[RingStatus, ...]:
    """The home's rings; none if there is none yet."""
    try:
        with Ring.attach(home.ring(L1), "observer") as ring:
            return (RingStatus(L1, ring.used, ring.capacity, ring.fill),)
    except AfterbayError:
        return ()


def _process(
    name: str, process: ProcessState, *, alive: set[int], holder: int | None
) -> ProcessStatus:
    here = process.pid in alive
    gone = not here and process.phase in {"starting", "ready"} and holder is None
    return ProcessStatus(
        name=name,
        phase="gone" if gone else process.phase,
        healthy=healthy(process.metrics) if process.metrics and here else None,
        pid=process.pid if here else None,
        restarts=process.restarts,
        last_exit=process.last_exit,
        metrics=process.metrics if here else "",
        log=process.log,
    )


def _phase(state: State | None, holder: int | None) -> str:
    if state is None:
        return "starting" if holder is not None else "stopped"
    if holder is None and state.phase != "stopped":
        return "killed"
    return state.phase
