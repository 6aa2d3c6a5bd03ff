"""`afterbay status`: processes, addresses, ring fill, table rows, lag in rows, arms.

In:   a home, running or not
Out:  a page for people; with --json one object (with --every: one a line, until interrupted)
"""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from afterbay.platform.cli.common import (
    HOME,
    HomeOption,
    JsonOption,
    say,
    say_json,
    say_table,
    settings_of,
)

if TYPE_CHECKING:
    from afterbay.platform.progress import Progress
    from afterbay.platform.status import Status


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(status)


def status(
    home: HomeOption = HOME,
    as_json: JsonOption = False,
    every: Annotated[
        float, typer.Option(min=0, help="Look again every so many seconds, until Ctrl-C; 0: once.")
    ] = 0,
) -> None:
    """Show what runs, where, and how far the data have come."""
    from afterbay.platform.progress import Looker
    from afterbay.platform.status import status_of

    settings = settings_of(home)
    looker = Looker(settings)
    try:
        while True:
            _show(status_of(settings.home, looker), as_json=as_json)
            if not every:
                return
            time.sleep(every)
    except KeyboardInterrupt:
        return
    finally:
        looker.close()


def _show(found: Status, *, as_json: bool) -> None:
    if as_json:
        say_json(asdict(found))
        return
    by = f" by process {found.supervisor}" if found.supervisor else ""
    say(f"{found.home}: {found.phase}{by}")
    for name, address in found.addresses.items():
        say(f"  {name:<8} {address}")
    _show_processes(found)
    for ring in found.rings:
        say(f"\nring {ring.name}: {ring.fill:.1%} of {ring.capacity / 2**20:.0f} MiB")
    _show_data(found.data)


def _show_processes(found: Status) -> None:
    if not found.processes:
        return
    say("")
    health = {True: "yes", False: "NO", None: ""}
    columns = ("process", "state", "healthy", "pid", "restarts", "last exit", "metrics")
    rows = [
        (p.name, p.phase, health[p.healthy], p.pid or "", p.restarts, p.last_exit, p.metrics)
        for p in found.processes
    ]
    say_table(columns, rows)


def _show_data(data: Progress) -> None:
    if data.tables:
        say("\ntable rows: " + ", ".join(f"{name} {rows:,}" for name, rows in data.tables.items()))
        known = {name: "?" if rows is None else f"{rows:,}" for name, rows in data.lag.items()}
        say("rows still to take in: " + ", ".join(f"{name} {n}" for name, n in known.items()))
    if data.arms is not None:
        say(f"arms of {data.arms['policy']}, {data.arms['published']} snapshots published:")
        serving = data.arms["serving"]
        for arm, share in serving.items() if isinstance(serving, dict) else ():
            say(f"  {arm:<9} {share['probability']:.0%}  {share['snapshot_id']}")
        if not serving:
            say("  nothing serves; `afterbay policy warmstart` makes and promotes a first snapshot")
    for problem in data.problems:
        say(f"problem: {problem}")
