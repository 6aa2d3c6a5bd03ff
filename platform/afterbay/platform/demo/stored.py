"""What the platform has stored of this run, asked in SQL through `afterbay query`.

In:   the command line, the ids that HTTP accepted, when the run began
Out:  counts, sets and series for the recording
Never: opens a table by itself
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Set
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from afterbay.platform.demo.commands import Afterbay
from afterbay.platform.demo.recording import Count, RangePoint, RewardPoint, Step
from afterbay.schemas.topics import ARCHIVE_TABLE, EXPERIENCE_TABLE, TABLES, topic

POINT_S = 10
"""Seconds that one point of a series stands for."""
_INFERENCE, _FEEDBACK = "inference.completed.v2", "feedback.received.v2"
_TABLE_OF_ID = {_INFERENCE: "inference", _FEEDBACK: "feedback"}
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


async def events(afterbay: Afterbay, accepted: Accepted) -> dict[str, Count]:
    """Sent and found of every topic; what HTTP accepted is compared as sets."""
    found = {name: await _ids(afterbay, accepted, name) for name in _TABLE_OF_ID}
    archived = await archive_counts(afterbay)
    rows = await table_counts(afterbay)
    counts = {}
    for name, table in TABLES.items():
        if name in found:
            ids = accepted.of(name)
            counts[name] = Count(len(ids), len(ids & found[name]))
        elif topic(name).table == "deadletter":
            # the sink's own dead letters are in the table too, without a topic of their own
            counts[name] = Count(archived.get(name, 0), min(archived.get(name, 0), rows[table]))
        else:
            counts[name] = Count(archived.get(name, 0), rows[table])
    return counts


async def archive_counts(afterbay: Afterbay) -> dict[str, int]:
    """Archived events by topic."""
    sql = f"select _topic, count(*) n from {ARCHIVE_TABLE} where _kind = 'event' group by 1"  # noqa: S608  # names of ours
    return {row["_topic"]: row["n"] for row in await afterbay.query(sql)}


async def table_counts(afterbay: Afterbay) -> dict[str, int]:
    """Rows of every table."""
    names = [*TABLES.values(), EXPERIENCE_TABLE, ARCHIVE_TABLE]
    sql = " union all ".join(f"select '{n}' as name, count(*) as n from {n}" for n in names)  # noqa: S608  # names of ours
    return {row["name"]: row["n"] for row in await afterbay.query(sql)}


async def doubled(afterbay: Afterbay) -> int:
    """Event ids that are in a table more than once, in all runs of this home."""
    one = "select count(event_id) - count(distinct event_id) as n from {}"
    sql = " union all ".join(one.format(table) for table in TABLES.values())
    return sum(row["n"] for row in await afterbay.query(sql))


async def rewards(afterbay: Afterbay, accepted: Accepted) -> list[RewardPoint]:
    """Mean reward by time of the answer, snapshot and arm."""
    rows = await afterbay.query(
        f"""select {_point("completed_at", accepted)} as point, snapshot_id, arm,
        avg(reward) as mean, count(*) as n from experience_current
        where inference_id >= '{accepted.since_id}' group by all order by all"""  # noqa: S608  # ids of ours
    )
    return [
        RewardPoint(
            at_s=_middle(row),
            snapshot_id=row["snapshot_id"],
            arm=row["arm"],
            mean=float(row["mean"]),
            n=row["n"],
        )
        for row in rows
    ]


async def ranges(afterbay: Afterbay, accepted: Accepted) -> list[RangePoint]:
    """Experiences by time of the answer and reward range."""
    rows = await afterbay.query(
        f"""select {_point("completed_at", accepted)} as point, reward_range, count(*) as n
        from experience_current where inference_id >= '{accepted.since_id}'
        group by all order by all"""  # noqa: S608  # ids of ours
    )
    return [
        RangePoint(at_s=_middle(row), reward_range=row["reward_range"], n=row["n"]) for row in rows
    ]


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


def _point(column: str, accepted: Accepted) -> str:
    return f"floor((epoch({column}) - {accepted.since.timestamp()}) / {POINT_S})"


def _middle(row: dict[str, Any]) -> float:
    return (float(row["point"]) + 0.5) * POINT_S
