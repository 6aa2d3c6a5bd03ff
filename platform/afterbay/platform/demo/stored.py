"""What the platform has stored of this run, asked in SQL through `afterbay query`.

In:   the command line, the ids that HTTP accepted, when the run began
Out:  counts, sets and series for the recording
Never: opens a table by itself
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Set
from dataclasses import dataclass
from datetime import datetime

from afterbay.platform.demo.commands import Afterbay
from afterbay.platform.demo.recording import Count, RangePoint, RewardPoint, Step
from afterbay.schemas.topics import ARCHIVE_TABLE, DEADLETTER_TABLE, EXPERIENCE_TABLE, TABLES

POINT_S = 10
"""Seconds that one point of a series stands for."""
_INFERENCE, _FEEDBACK = "inference.completed.v2", "feedback.received.v2"
_TABLE_OF_ID = {_INFERENCE: "inference", _FEEDBACK: "feedback"}
_COUNTED = ("rows", "archived")
_LOOK_AGAIN_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """Ids that HTTP accepted, by topic, and the smallest id the run can have made."""

    inference: Set[str]
    feedback: Set[str]
    since_id: str
    """UUIDv7 of the run's begin: rows of earlier runs have smaller ids."""
    since: datetime
    """Start of the play, UTC."""

    def of(self, name: str) -> Set[str]:
        """Accepted ids of a topic that HTTP feeds."""
        return self.inference if name == _INFERENCE else self.feedback


async def wait_until_stored(afterbay: Afterbay, accepted: Accepted, timeout_s: float) -> bool:
    """Look until every accepted id is in its table; False if time ran out before."""
    end = time.monotonic() + timeout_s
    while True:
        missing = [len(accepted.of(n) - await _ids(afterbay, accepted, n)) for n in _TABLE_OF_ID]
        if not any(missing):
            return True
        if time.monotonic() > end:
            return False
        await asyncio.sleep(_LOOK_AGAIN_S)


async def _ids(afterbay: Afterbay, accepted: Accepted, name: str) -> set[str]:
    table = _TABLE_OF_ID[name]
    sql = f"select event_id from {table} where event_id >= '{accepted.since_id}'"  # noqa: S608  # ids and names of ours
    return {row["event_id"] for row in await afterbay.query(sql)}


@dataclass(frozen=True, slots=True)
class Counts:
    """Rows of this home. Made by `counts`: one query, because each costs a second."""

    tables: dict[str, int]
    """Rows of every table."""
    archived: dict[str, int]
    """Archived events of every topic."""
    doubled: int
    """Event ids that are in a table more than once, in all runs of this home."""


async def counts(afterbay: Afterbay) -> Counts:
    """Count everything."""
    one = "select 'rows' as what, '{0}' as name, count(*) as n, {1} as again from {0}"
    again = "count(event_id) - count(distinct event_id)"
    asked = [one.format(table, again) for table in TABLES.values()]
    asked += [one.format(table, "0") for table in (EXPERIENCE_TABLE, ARCHIVE_TABLE)]
    asked.append(
        f"select 'archived', _topic, count(*), 0 from {ARCHIVE_TABLE}"  # noqa: S608  # names of ours
        " where _kind = 'event' group by _topic"
    )
    rows = await afterbay.query(" union all ".join(asked))
    by_what = {what: {r["name"]: r["n"] for r in rows if r["what"] == what} for what in _COUNTED}
    return Counts(by_what["rows"], by_what["archived"], sum(row["again"] for row in rows))


async def events(afterbay: Afterbay, accepted: Accepted, counted: Counts) -> dict[str, Count]:
    """Sent and found of every topic; what HTTP accepted is compared as sets."""
    found = {name: await _ids(afterbay, accepted, name) for name in _TABLE_OF_ID}
    return {name: _count(name, found.get(name), accepted, counted) for name in TABLES}


def _count(name: str, found: set[str] | None, accepted: Accepted, counted: Counts) -> Count:
    if found is not None:
        ids = accepted.of(name)
        return Count(len(ids), len(ids & found))
    archived, rows = counted.archived.get(name, 0), counted.tables[TABLES[name]]
    # the sink's own dead letters are in their table too, and were never on a topic
    return Count(archived, min(archived, rows) if TABLES[name] == DEADLETTER_TABLE else rows)


async def experience(
    afterbay: Afterbay, accepted: Accepted
) -> tuple[list[RewardPoint], list[RangePoint]]:
    """Mean reward by time of the answer, snapshot and arm; experiences by time and range."""
    rows = await afterbay.query(
        f"""select floor((epoch(completed_at) - {accepted.since.timestamp()}) / {POINT_S}) as point,
        snapshot_id, arm, reward_range, sum(reward) as reward, count(*) as n
        from experience_current where inference_id >= '{accepted.since_id}'
        group by all order by all"""  # noqa: S608  # ids of ours
    )
    by_snapshot: dict[tuple[float, str, str], list[tuple[float, int]]] = defaultdict(list)
    by_range: Counter[tuple[float, str]] = Counter()
    for row in rows:
        at_s = (float(row["point"]) + 0.5) * POINT_S
        by_snapshot[at_s, row["snapshot_id"], row["arm"]].append((row["reward"], row["n"]))
        by_range[at_s, row["reward_range"]] += row["n"]
    return (
        [_reward_point(*key, values) for key, values in by_snapshot.items()],
        [RangePoint(at_s=at, reward_range=name, n=n) for (at, name), n in by_range.items()],
    )


def _reward_point(
    at_s: float, snapshot_id: str, arm: str, values: list[tuple[float, int]]
) -> RewardPoint:
    n = sum(count for _, count in values)
    mean = sum(reward for reward, _ in values) / n
    return RewardPoint(at_s=at_s, snapshot_id=snapshot_id, arm=arm, mean=mean, n=n)


async def steps(afterbay: Afterbay, accepted: Accepted) -> list[Step]:
    """What happened to snapshots in this run, in order."""
    rows = await afterbay.query(
        f"""select epoch(_ts) - {accepted.since.timestamp()} as at, snapshot_id, action
        from policy where event_id >= '{accepted.since_id}' order by _ts, event_id"""  # noqa: S608  # ids of ours
    )
    return [
        Step(at_s=float(r["at"]), snapshot_id=r["snapshot_id"], action=r["action"]) for r in rows
    ]


async def loaded(afterbay: Afterbay, accepted: Accepted) -> int:
    """Distinct snapshots that nodes loaded in this run."""
    rows = await afterbay.query(
        f"""select count(distinct snapshot_id) as n from loaded
        where error is null and event_id >= '{accepted.since_id}'"""  # noqa: S608  # ids of ours
    )
    return int(rows[0]["n"])
