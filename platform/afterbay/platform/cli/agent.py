"""`afterbay agent run NAME`: one agent alone, as in a cluster, where something else supervises.

In:   the agent's name; its settings from the environment
Out:  the agent's exit code
"""

from __future__ import annotations

import os
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(no_args_is_help=True, help="Run single agents.")
    group.command("run")(run)
    app.add_typer(group, name="agent")


def run(
    name: Annotated[
        str,
        typer.Argument(
            help="gateway, scheduler, node, flusher, sink, rewarder, bucketer or maintenance."
        ),
    ],
) -> None:
    """Run one agent in this process until SIGTERM; AFTERBAY_* variables are its settings."""
    from afterbay.platform.agents import run_agent

    raise typer.Exit(run_agent(name, os.environ))
