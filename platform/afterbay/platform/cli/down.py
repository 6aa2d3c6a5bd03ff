"""`afterbay down`: stop what `afterbay up` started, and return when it is gone.

In:   the supervisor's lock, run/state.json
Out:  no process of this home left
Never: deletes data; signals a process that is not proved to be ours
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress

import typer

from afterbay.platform.cli.common import HOME, HomeOption, say
from afterbay.platform.home import Home
from afterbay.platform.processes import wait_until
from afterbay.platform.state import clear_leftovers, supervisor_of

_STOP_TIMEOUT_S = 90.0


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(down)


def down(home: HomeOption = HOME) -> None:
    """Stop everything of this home; data are kept."""
    place = Home(home)
    holder = supervisor_of(place)
    if holder is None:
        clear_leftovers(place)
        say(f"nothing runs in {place.path}")
        return
    _signal(holder, signal.SIGTERM)
    if not wait_until(lambda: supervisor_of(place) != holder, _STOP_TIMEOUT_S):
        say(f"process {holder} does not stop; killing it and its children")
        _signal(holder, signal.SIGKILL)
        wait_until(lambda: supervisor_of(place) != holder, _STOP_TIMEOUT_S)
    clear_leftovers(place)
    say("stopped; the data are kept")


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
