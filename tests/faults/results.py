"""What a run of schedules found, one JSON line each, and the table at its end.

In:   played schedules, or the lines of a run before
Out:  lines of a file, a table, an exit code
Never: counts a schedule twice; a later line of the same number replaces the earlier
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from tests.faults.plan import FAULTS
from tests.faults.play import Played

_SHOWN = 5


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One schedule. Made by `Results.add`, read by a run that resumes."""

    number: int
    seed: str
    actions: dict[str, int]
    hits: dict[str, int]
    events: int
    """Committed events on the topics."""
    lost: list[str]
    doubled: list[str]
    wrong: list[str]
    seconds: float

    @property
    def ok(self) -> bool:
        """True if all was well."""
        return not (self.lost or self.doubled or self.wrong)

    def __str__(self) -> str:
        done = ", ".join(f"{count} {kind}" for kind, count in sorted(self.actions.items()))
        hits = ", ".join(self.hits) or "none"
        return (
            f"seed {self.seed}: {done}; hit: {hits}; {self.events} events, {len(self.lost)} lost, "
            f"{len(self.doubled)} doubled, {len(self.wrong)} wrong, {self.seconds:.1f} s"
        )


class Results:
    """The file of one seed."""

    def __init__(self, path: Path, *, resume: bool) -> None:
        self._path = path
        self.lines: dict[int, Line] = {}
        """By number."""
        if resume and path.exists():
            decoded = (
                msgspec.json.decode(raw, type=Line) for raw in path.read_bytes().splitlines()
            )
            self.lines = {line.number: line for line in decoded if line.ok}
        else:
            path.unlink(missing_ok=True)

    @property
    def good(self) -> set[int]:
        """Numbers of schedules that need not be played again."""
        return set(self.lines)

    def add(self, played: Played) -> Line:
        """Write one down."""
        verdict = played.verdict
        line = Line(
            number=played.plan.number,
            seed=played.plan.seed,
            actions=dict(played.actions),
            hits=dict(played.hits),
            events=played.events,
            lost=verdict.lost,
            doubled=verdict.doubled,
            wrong=verdict.wrong,
            seconds=played.seconds,
        )
        with self._path.open("ab") as out:
            out.write(msgspec.json.encode(line) + b"\n")
        self.lines[line.number] = line
        return line


def show(lines: Iterable[Line], seed: int, console: Console, *, every_fault: bool) -> int:
    """Print the table and what failed; the exit code. `every_fault`: each must have been hit."""
    all_lines = list(lines)
    hits = sum((Counter(line.hits) for line in all_lines), Counter[str]())
    actions = sum((Counter(line.actions) for line in all_lines), Counter[str]())
    bad = [line for line in all_lines if not line.ok]
    table = Table("what", "count", title=f"fault schedules, seed {seed}")
    table.add_row("schedules", f"{len(all_lines)}")
    table.add_row("events", f"{sum(line.events for line in all_lines)}")
    for kind, count in sorted(actions.items()):
        table.add_row(f"action {kind}", f"{count}")
    names = [" ".join(fault) for fault in FAULTS]
    for name in names:
        table.add_row(f"hit {name}", f"{hits[name]}")
    for name in ("lost", "doubled", "wrong"):
        table.add_row(name, f"{sum(len(getattr(line, name)) for line in all_lines)}")
    console.print(table)
    for line in bad:
        _explain(line, seed, console)
    missed = [name for name in names if not hits[name]] if every_fault else []
    if missed:
        console.print(f"never hit: {', '.join(missed)}", markup=False)
    return 1 if bad or missed else 0


def _explain(line: Line, seed: int, console: Console) -> None:
    console.print(f"schedule {line.number} failed; its home is kept. Play just it again:")
    console.print(f"  python -m tests.faults --seed {seed} --only {line.number}", markup=False)
    for name in ("lost", "doubled", "wrong"):
        found: list[str] = getattr(line, name)
        for text in found[:_SHOWN]:
            console.print(f"  {name}: {text}", markup=False)
        if len(found) > _SHOWN:
            console.print(f"  {name}: and {len(found) - _SHOWN} more", markup=False)
