"""`afterbay prove`: nothing lost, nothing doubled, nothing out of place.

In:   every table, pinned at one version each
Out:  `Proof`: the differences found, each with its place, and how many rows were looked at
Never: takes "not there yet" for a difference: a table is judged up to its own position, and what
      the archive holds past it is counted as behind

The archive's rows and recorded gaps cover [0, next) of every partition exactly once; every table
holds exactly the events the archive says; no event id is doubled; rewards name feedback that is
there; experience is what rewards and inferences make.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import polars as pl

from afterbay.dsa.rewards import Edges
from afterbay.lakehouse import tables as lake_tables
from afterbay.lakehouse.coverage import archive_differences, archived, table_differences
from afterbay.lakehouse.lake import Lake
from afterbay.lakehouse.proof import Difference, Pinned, pin
from afterbay.lakehouse.rebuild import experience_differences, reward_differences
from afterbay.schemas.errors import BadSettings
from afterbay.schemas.topics import ARCHIVE_TABLE, EXPERIENCE_TABLE

# downstream first: whatever a table holds, the ones it was made from hold already
_DOWNSTREAM_FIRST = tuple(
    dict.fromkeys((EXPERIENCE_TABLE, "reward", *lake_tables.TOPIC_OF, ARCHIVE_TABLE))
)
_COMPARED_WITH = {EXPERIENCE_TABLE: ("reward", "inference"), "reward": ("feedback",)}


@dataclass(frozen=True, slots=True)
class Proof:
    """The outcome. Made by `prove`, shown by the CLI, the demo and asset checks."""

    differences: tuple[Difference, ...]
    counts: Mapping[str, int]
    """Rows looked at, by table."""
    behind: Mapping[str, int]
    """Rows that a table has still to take in from what it is made of; all 0 once at rest."""

    @property
    def ok(self) -> bool:
        """True if there is no difference; tables may still be behind."""
        return not self.differences


def prove(lake: Lake, tables: Iterable[str] | None = None, edges: Edges | None = None) -> Proof:
    """Compare `tables` (all if None) with the archive and with each other.

    `edges` are those the bucketer uses. BadSettings for a table that does not exist.
    """
    wanted = list(lake_tables.NAMES if tables is None else tables)
    unknown = sorted(set(wanted) - set(lake_tables.NAMES))
    if unknown:
        raise BadSettings(
            f"no table {', '.join(unknown)}; known tables: {', '.join(lake_tables.NAMES)}"
        )
    needed = {ARCHIVE_TABLE, *wanted, *(n for name in wanted for n in _COMPARED_WITH.get(name, ()))}
    pinned = {name: pin(lake, name) for name in _DOWNSTREAM_FIRST if name in needed}
    rows = archived(pinned[ARCHIVE_TABLE])
    differences: list[Difference] = []
    behind: dict[str, int] = {}
    for name in wanted:
        some, behind[name] = _one(name, pinned, rows, edges or Edges())
        differences += some
    counts = {name: pinned[name].handle.count() for name in wanted}
    return Proof(tuple(differences), counts, behind)


def _one(
    name: str, pinned: Mapping[str, Pinned], rows: pl.DataFrame, edges: Edges
) -> tuple[list[Difference], int]:
    table, archive = pinned[name], pinned[ARCHIVE_TABLE]
    if name == ARCHIVE_TABLE:
        return archive_differences(archive, rows), 0
    if name == EXPERIENCE_TABLE:
        return experience_differences(table, pinned["reward"], pinned["inference"], edges)
    differences, behind = table_differences(table, archive, rows)
    if name == "reward":
        differences += reward_differences(table, pinned["feedback"])
    return differences, behind
