"""`afterbay up`: start everything, and stay until Ctrl-C, SIGTERM or `afterbay down`.

In:   options; AFTERBAY_* and KAFKA_HOME from the environment
Out:  a running installation; its addresses on standard output
Refuses: a home that runs already, ports in use, settings out of range
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from afterbay.platform.cli.common import HOME, HomeOption, JsonOption, say, say_json
from afterbay.platform.home import Home
from afterbay.platform.installation import Plan, UpOptions, make_keys, plan
from afterbay.platform.processes import python_module, wait_until
from afterbay.platform.state import (
    State,
    clear_leftovers,
    read_state,
    supervising,
    supervisor_of,
)
from afterbay.platform.supervisor import Supervisor
from afterbay.schemas.errors import BadState, Unavailable

_DETACHED_TIMEOUT_S = 600.0


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(up)


def up(
    *,
    home: HomeOption = HOME,
    port: Annotated[
        int, typer.Option(envvar="AFTERBAY_GATEWAY_PORT", help="Of the gateway; 0: any free one.")
    ] = 8080,
    broker_port: Annotated[
        int, typer.Option(help="Of the embedded Kafka; 0: any free one.")
    ] = 9092,
    dagster_port: Annotated[int, typer.Option(help="Of Dagster's UI; 0: any free one.")] = 3000,
    nodes: Annotated[int, typer.Option(min=1, max=64, help="Inference nodes.")] = 2,
    no_dagster: Annotated[
        bool, typer.Option("--no-dagster", help="Serve and store, but do not train.")
    ] = False,
    broker_heap_mb: Annotated[int, typer.Option(min=128, help="Memory of Kafka's heap.")] = 1024,
    detach: Annotated[
        bool, typer.Option("--detach", help="Return once everything is ready; stop with `down`.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Start everything: Kafka, gateway, scheduler, nodes, stream agents, Dagster.

    Stays in the foreground; Ctrl-C stops everything. An AFTERBAY_BOOTSTRAP in the environment is
    used instead of starting a Kafka, a KAFKA_HOME instead of the pinned jars.
    """
    if detach:
        _report(_detached(Home(home)), as_json=as_json)
        return
    options = UpOptions(
        home=Home(home),
        gateway_port=port,
        broker_port=broker_port,
        dagster_port=dagster_port,
        nodes=nodes,
        dagster=not no_dagster,
        heap_mb=broker_heap_mb,
    )
    with supervising(options.home):
        clear_leftovers(options.home)
        _run(options, as_json=as_json)


class _StopSignals:
    """Ctrl-C and SIGTERM: an exception while nothing runs yet, afterwards a flag."""

    def __init__(self) -> None:
        self.asked = False
        self.must_finish = False
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._on_signal)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self.asked = True
        if not self.must_finish:
            raise KeyboardInterrupt


def _run(options: UpOptions, *, as_json: bool) -> None:
    signals = _StopSignals()
    try:
        make_keys(options.home)
        planned = plan(options, os.environ)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    signals.must_finish = True
    supervisor = _supervisor(options.home, planned, tell=not as_json)
    try:
        if supervisor.start(lambda: signals.asked):
            state = read_state(options.home)
            if state is not None:
                _report(state, as_json=as_json)
            supervisor.run(lambda: signals.asked)
    finally:
        supervisor.stop()
    if not as_json:
        say("stopped; the data are kept")


def _supervisor(home: Home, planned: Plan, *, tell: bool) -> Supervisor:
    return Supervisor(
        home,
        planned.specs,
        environ=os.environ,
        addresses=planned.addresses,
        metrics=planned.metrics,
        settings=planned.settings,
        notice=say if tell else lambda _: None,
    )


def _detached(home: Home) -> State:
    """Run this very command without --detach in the background; its state once it is ready."""
    if (holder := supervisor_of(home)) is not None:
        raise BadState(f"{home.path} is run by process {holder} already; `afterbay down` stops it")
    home.prepare()
    _StopSignals()
    arguments = [argument for argument in sys.argv[1:] if argument not in {"--detach", "--json"}]
    log = home.log("supervisor")
    with log.open("ab") as out:
        begin = out.tell()
        child = subprocess.Popen(
            python_module("afterbay.platform.cli", *arguments),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        wait_until(
            lambda: child.poll() is not None or _ready_state(home, child.pid) is not None,
            _DETACHED_TIMEOUT_S,
        )
    except KeyboardInterrupt:  # it is in a session of its own: nobody else tells it
        _end(child)
        raise typer.Exit(130) from None
    state = _ready_state(home, child.pid)
    if state is None:
        _end(child)
        raise Unavailable(f"`afterbay up` did not get ready:\n{_since(log, begin)}")
    return state


def _end(child: subprocess.Popen[bytes]) -> None:
    """Have a background `up` stop what it started, and wait for it."""
    if child.poll() is None:
        child.terminate()
        child.wait()


def _ready_state(home: Home, pid: int) -> State | None:
    state = read_state(home)
    return state if state is not None and (state.pid, state.phase) == (pid, "ready") else None


def _since(log: Path, begin: int) -> str:
    return log.read_bytes()[begin:].decode("utf-8", "replace").strip()


def _report(state: State, *, as_json: bool) -> None:
    if as_json:
        say_json({"pid": state.pid, "addresses": state.addresses})
        return
    say("afterbay is up:")
    for name, address in state.addresses.items():
        say(f"  {name:<8} {address}")
    say("`afterbay apikey create` makes a key, `afterbay status` shows what runs")
