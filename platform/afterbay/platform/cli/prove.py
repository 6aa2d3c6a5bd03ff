"""`afterbay prove`: is every event in every table exactly once?

In:   the tables
Out:  what was looked at, and every difference with its place; exit code 1 if there is one
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
    from afterbay.lakehouse.prove import Proof

_LOOK_AGAIN_S = 0.5


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(prove)


def prove(
    tables: Annotated[list[str] | None, typer.Argument(help="Only these tables.")] = None,
    wait: Annotated[
        float, typer.Option(min=0, help="Seconds to wait until no table is behind the archive.")
    ] = 0,
    home: HomeOption = HOME,
    as_json: JsonOption = False,
) -> None:
    """Show that nothing is lost, doubled or out of place."""
    from afterbay.lakehouse.lake import Lake
    from afterbay.lakehouse.prove import prove as proof_of

    lake, end = Lake(str(settings_of(home).home.lake)), time.monotonic() + wait
    proof = proof_of(lake, tables or None)
    while any(proof.behind.values()) and time.monotonic() < end:
        time.sleep(_LOOK_AGAIN_S)
        proof = proof_of(lake, tables or None)
    _show(proof, as_json=as_json)
    raise typer.Exit(0 if proof.ok else 1)


def _show(proof: Proof, *, as_json: bool) -> None:
    if as_json:
        say_json({**asdict(proof), "ok": proof.ok})
        return
    say_table(
        ("table", "rows", "behind"),
        [(name, rows, proof.behind.get(name, 0)) for name, rows in proof.counts.items()],
    )
    for difference in proof.differences:
        say(str(difference))
    say("ok: every event once, in every table" if proof.ok else "NOT ok: see the differences")
