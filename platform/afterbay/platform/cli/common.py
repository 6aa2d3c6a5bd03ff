"""What the commands share: options, the settings of the installation that is meant, output.

In:   --home or AFTERBAY_HOME, the environment, run/state.json
Out:  Home, Settings
Never: starts anything
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from afterbay.platform.home import Home
from afterbay.platform.settings import DEFAULT_HOME, Settings
from afterbay.platform.state import read_state, supervisor_of

HomeOption = Annotated[
    Path,
    typer.Option(
        "--home",
        envvar="AFTERBAY_HOME",
        help="Folder of the installation.",
        show_default=True,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
HOME = Path(DEFAULT_HOME)
_JSON = msgspec.json.Encoder(enc_hook=str, decimal_format="number")


def settings_of(home: Path) -> Settings:
    """Settings of the installation in `home`: the environment, else what it runs or ran with."""
    state = read_state(Home(home))
    known = state.settings if state else {}
    given = {name: value for name, value in os.environ.items() if name.startswith("AFTERBAY_")}
    return Settings.from_env({**known, **given, "AFTERBAY_HOME": str(home)})


def running(home: Home) -> bool:
    """Whether a supervisor runs `home` now."""
    return supervisor_of(home) is not None


def say(line: str) -> None:
    """One line for a person, at once even into a pipe."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def say_json(value: Any) -> None:
    """One JSON document for a program, on one line; NaN, which JSON has not, becomes null."""
    say(_JSON.encode(value).decode())


def say_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Rows under their column names, aligned."""
    lines = [[str(cell) for cell in row] for row in (columns, *rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    for line in lines:
        say("  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip())
