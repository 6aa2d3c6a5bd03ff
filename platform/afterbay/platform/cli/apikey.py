"""`afterbay apikey create`: a key for clients of the gateway, and for operators.

In:   a name for it, the scopes it has
Out:  its text, this once
Never: stores the text
"""

from __future__ import annotations

from typing import Annotated

import typer

from afterbay.platform.cli.common import HOME, HomeOption, JsonOption, say, say_json, say_table
from afterbay.platform.home import Home


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(
        no_args_is_help=True, help="Keys for clients of the gateway, and for operators."
    )
    group.command("create")(create)
    group.command("list")(list_keys)
    app.add_typer(group, name="apikey")


def create(
    name: Annotated[str, typer.Argument(help="What to call it.")] = "default",
    scope: Annotated[
        list[str] | None,
        typer.Option(
            help="What it may do beyond calling the gateway: pii:decrypt. May be repeated."
        ),
    ] = None,
    home: HomeOption = HOME,
    as_json: JsonOption = False,
) -> None:
    """Make an API key and print it; it is shown only now. The gateway knows it at once."""
    from afterbay.platform import apikeys
    from afterbay.schemas.clock import SystemClock

    new = apikeys.create(Home(home).api_keys, name, SystemClock().now(), scope or ())
    if as_json:
        say_json({"id": new.id, "key": new.text})
    else:
        say(new.text)


def list_keys(home: HomeOption = HOME, as_json: JsonOption = False) -> None:
    """List the keys by id, name and scopes."""
    from afterbay.platform import apikeys

    keys = apikeys.read_keys(Home(home).api_keys)
    if as_json:
        shown = ("id", "name", "created_at", "scopes")
        say_json([{name: getattr(key, name) for name in shown} for key in keys])
    else:
        rows = [(k.id, k.name, k.created_at, " ".join(k.scopes)) for k in keys]
        say_table(("id", "name", "created", "scopes"), rows)
