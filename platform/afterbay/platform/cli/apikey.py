"""`afterbay apikey create`: a key for clients of the gateway.

In:   a name for it
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
    group = typer.Typer(no_args_is_help=True, help="Keys for clients of the gateway.")
    group.command("create")(create)
    group.command("list")(list_keys)
    app.add_typer(group, name="apikey")


def create(
    name: Annotated[str, typer.Argument(help="What to call it.")] = "default",
    home: HomeOption = HOME,
    as_json: JsonOption = False,
) -> None:
    """Make an API key and print it; it is shown only now. The gateway knows it at once."""
    from afterbay.platform import apikeys
    from afterbay.schemas.clock import SystemClock

    new = apikeys.create(Home(home).api_keys, name, SystemClock().now())
    if as_json:
        say_json({"id": new.id, "key": new.text})
    else:
        say(new.text)


def list_keys(home: HomeOption = HOME, as_json: JsonOption = False) -> None:
    """List the keys by id and name."""
    from afterbay.platform import apikeys

    keys = apikeys.read_keys(Home(home).api_keys)
    if as_json:
        say_json([{"id": k.id, "name": k.name, "created_at": k.created_at} for k in keys])
    else:
        say_table(("id", "name", "created"), [(k.id, k.name, k.created_at) for k in keys])
