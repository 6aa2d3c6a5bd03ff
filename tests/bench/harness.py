"""What every benchmark shares: figures, the machine, the table, the file.

In:   a module of this folder with `measure(folder) -> list[Figure]` and a docstring
Out:  a table on standard output, `.afterbay/bench/<name>.json`
Never: compares with a peer that ran elsewhere or at another time: a peer's value is measured in
       the same run, or there is none
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Peer:
    """What a figure is compared with."""

    name: str
    value: float
    """In the figure's unit."""


@dataclass(frozen=True, slots=True)
class Reach:
    """What a figure (its ratio to the peer, if it has one) is to reach."""

    sense: Literal[">=", "<="]
    value: float

    def holds(self, measured: float) -> bool:
        """Whether `measured` reaches it."""
        return measured >= self.value if self.sense == ">=" else measured <= self.value

    def __str__(self) -> str:
        return f"{self.sense} {self.value:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured number. Made by benchmarks, read by people and by later runs."""

    name: str
    value: float
    unit: str
    n: int
    """Observations behind the value."""
    peer: Peer | None = None
    reach: Reach | None = None
    """A floor, not a goal; None where nothing was promised."""

    @property
    def ratio(self) -> float | None:
        """value / peer's value; None without a peer."""
        return None if self.peer is None else self.value / self.peer.value

    @property
    def ok(self) -> bool | None:
        """Whether it reaches what was promised; None if nothing was."""
        if self.reach is None:
            return None
        return self.reach.holds(self.value if self.ratio is None else self.ratio)

    def as_json(self) -> dict[str, Any]:
        """The form in the file."""
        return {
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "n": self.n,
            "peer": None
            if self.peer is None
            else {"name": self.peer.name, "value": self.peer.value},
            "ratio": self.ratio,
            "reach": None if self.reach is None else str(self.reach),
            "ok": self.ok,
        }


Measure = Callable[[Path], Sequence[Figure]]
"""A benchmark: measures, with a folder of its own for what it needs on disk."""


def write_result(path: Path, name: str, figures: Sequence[Figure]) -> None:
    """Write the file of one benchmark."""
    result = {
        "name": name,
        "command": f"make bench NAME={name}",
        "machine": machine(),
        "figures": [figure.as_json() for figure in figures],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n", "utf-8")


def machine() -> dict[str, Any]:
    """What the figures were measured on; no name and no address of it."""
    return {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def show(name: str, figures: Sequence[Figure], console: Console) -> None:
    """The table of one benchmark."""
    table = Table("figure", "value", "unit", "n", "peer", "ratio", "reach", "ok", title=name)
    for figure in figures:
        table.add_row(
            figure.name,
            f"{figure.value:,.4g}",
            figure.unit,
            f"{figure.n:,}",
            "" if figure.peer is None else f"{figure.peer.name} {figure.peer.value:,.4g}",
            "" if figure.ratio is None else f"{figure.ratio:.2f}",
            "" if figure.reach is None else str(figure.reach),
            {True: "yes", False: "NO", None: ""}[figure.ok],
        )
    console.print(table)
