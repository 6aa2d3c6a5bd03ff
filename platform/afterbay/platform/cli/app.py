"""All commands in one application."""

from __future__ import annotations

import typer

from afterbay.platform.cli import (
    agent,
    apikey,
    deadletter,
    down,
    policy,
    prove,
    query,
    replay,
    restore,
    rewind,
    status,
    topics,
    up,
)

app = typer.Typer(
    name="afterbay",
    help="Improve an LLM agent from production feedback. Start with `afterbay up`.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for module in (up, down, status, topics, query, replay, prove, restore, rewind):
    module.register(app)
for group in (agent, apikey, deadletter, policy):
    group.register(app)
