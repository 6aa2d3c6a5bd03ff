"""`afterbay restore`: a table back to an older version, to be filled again from there.

In:   a table and one of its versions, while the agents are stopped
Out:  the version that the table has now; its writer reads the rest from Kafka again
"""

from __future__ import annotations

from typing import Annotated

import typer

from afterbay.platform.cli.common import HOME, HomeOption, say, settings_of


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(restore)


def restore(
    table: Annotated[str, typer.Argument(help="Name of the table.")],
    version: Annotated[int, typer.Argument(min=0, help="Version to go back to.")],
    home: HomeOption = HOME,
) -> None:
    """Take a table back to an older version; what came after is read from Kafka again."""
    from afterbay.lakehouse.lake import Lake
    from afterbay.lakehouse.repair import restore as restored

    now = restored(Lake(str(settings_of(home).home.lake)), table, version)
    say(f"table {table} is at version {now}, which is version {version} again; start the agents")
