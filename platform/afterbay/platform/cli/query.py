"""`afterbay query "select …"`: SQL over the tables, each at its newest version.

In:   one SQL statement (DuckDB's dialect); every table and the view `experience_current`
Out:  a table for people; with --json an array of objects, with --jsonl an object a line
Refuses: wrong SQL, with DuckDB's own words
Never: writes a table
"""

from __future__ import annotations

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
from afterbay.schemas.errors import BadSettings

if TYPE_CHECKING:
    import duckdb

_BATCH = 1_000


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(query)


def query(
    sql: Annotated[str, typer.Argument(help="One SQL statement.")],
    home: HomeOption = HOME,
    as_json: JsonOption = False,
    as_lines: Annotated[bool, typer.Option("--jsonl", help="One JSON object a line.")] = False,
    limit: Annotated[
        int, typer.Option(min=0, help="Rows shown to people at most; 0: all. JSON has all rows.")
    ] = 200,
) -> None:
    """Ask the tables in SQL. `experience_current` has each experience with its newest reward."""
    import duckdb

    from afterbay.lakehouse.lake import Lake
    from afterbay.lakehouse.query import connect

    with connect(Lake(str(settings_of(home).home.lake))) as connection:
        try:
            found = connection.execute(sql)
            if as_json or as_lines:
                _as_json(found, lines=as_lines)
            else:
                _as_table(found, limit)
        except duckdb.Error as error:
            raise BadSettings(f"query: {error}") from None


def _as_json(found: duckdb.DuckDBPyConnection, *, lines: bool) -> None:
    names, rows = _columns(found), []
    while batch := found.fetchmany(_BATCH):
        objects = [dict(zip(names, row, strict=True)) for row in batch]
        if lines:
            for one in objects:
                say_json(one)
        else:
            rows += objects
    if not lines:
        say_json(rows)


def _as_table(found: duckdb.DuckDBPyConnection, limit: int) -> None:
    rows = found.fetchmany(limit + 1) if limit else found.fetchall()
    shown = rows[:limit] if limit else rows
    say_table(_columns(found), [["" if cell is None else cell for cell in row] for row in shown])
    if len(rows) > len(shown):
        say(f"… more than {limit} rows; --limit 0 shows all")


def _columns(found: duckdb.DuckDBPyConnection) -> list[str]:
    return [str(column[0]) for column in found.description or ()]
