"""Looks at the running platform from outside while the demo plays.

In:   `afterbay status --every`, Dagster's GraphQL, now and then a query
Out:  `Seen`, which the display shows and the recording keeps
Never: disturbs what it looks at more than it must: one status process for the whole play, at the
      lowest priority
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from afterbay.platform.demo.commands import Afterbay, CommandFailed
from afterbay.platform.demo.orchestration import Run, runs_since
from afterbay.schemas.errors import Unavailable

STATUS_S = 3
REWARDS_S = 20.0
RUNS_S = 4.0


@dataclass(slots=True)
class Seen:
    """What was seen last, and the series that need many looks. Written by `Watch`."""

    tables: dict[str, int] = field(default_factory=dict)
    """Rows of each table."""
    behind: dict[str, int | None] = field(default_factory=dict)
    """Rows that sink, rewarder and bucketer have still to take in."""
    arms: dict[str, Any] = field(default_factory=dict)
    """Snapshot and probability of each arm that serves."""
    runs: list[Run] = field(default_factory=list)
    """Dagster's runs of this demo, oldest first."""
    rewards: dict[str, tuple[float, int]] = field(default_factory=dict)
    """Mean reward and number of rewards of each arm, over the last minute."""
    table_age_s: list[float] = field(default_factory=list)
    """At each look during the play: age of the newest answer that is in the table."""
    quiet_looks: int = 0
    """Looks in a row at which nobody had anything left to take in."""
    restarts: dict[str, int] = field(default_factory=dict)
    """Crashed processes, and how often they were started again."""


class Watch:
    """The lookers of one play."""

    def __init__(
        self,
        afterbay: Afterbay,
        dagster: str | None,
        since: float,
        answered_at: Sequence[float],
    ) -> None:
        """`since` is the begin in seconds since the epoch; `answered_at` grows with each answer."""
        self.seen = Seen()
        self._afterbay = afterbay
        self._dagster = dagster
        self._since = since
        self._answered_at = answered_at
        self.stored_before = 0
        """Inferences that the home held, or was sent, before the play."""

    async def run(self) -> None:
        """Look until cancelled."""
        async with asyncio.TaskGroup() as lookers:
            lookers.create_task(self._status())
            lookers.create_task(self._rewards())
            lookers.create_task(self._runs())

    async def look_at_runs(self) -> list[Run]:
        """Dagster's runs now; those seen last if it does not answer, none without Dagster."""
        if self._dagster is not None:
            try:
                self.seen.runs = await asyncio.to_thread(runs_since, self._dagster, self._since)
            except Unavailable:
                return self.seen.runs
        return self.seen.runs

    async def _status(self) -> None:
        async for look in self._afterbay.lines("status", "--json", "--every", str(STATUS_S)):
            self._note(look, time.time())

    def _note(self, look: dict[str, Any], now: float) -> None:
        data, seen = look["data"], self.seen
        seen.tables = data["tables"] or seen.tables
        seen.behind = data["lag"]
        quiet = bool(seen.behind) and all(rows == 0 for rows in seen.behind.values())
        seen.quiet_looks = seen.quiet_looks + 1 if quiet else 0
        seen.arms = (data["arms"] or {}).get("serving") or {}
        seen.restarts = {p["name"]: p["restarts"] for p in look["processes"] if p["restarts"]}
        stored = seen.tables.get("inference", 0) - self.stored_before
        if 0 < stored <= len(self._answered_at):
            # answers land in the order in which they were given, but for a few
            newer = bisect_right(self._answered_at, now) - stored
            if newer > 0:
                seen.table_age_s.append(now - self._answered_at[stored - 1])

    async def _rewards(self) -> None:
        while True:
            await asyncio.sleep(REWARDS_S)
            try:
                rows = await self._afterbay.query(
                    "select arm, avg(reward) as mean, count(*) as n from experience_current"
                    " where completed_at > now() - interval 60 seconds group by arm",
                    polite=True,
                )
            except CommandFailed:
                continue  # only the display shows it; the next look may do
            self.seen.rewards = {row["arm"]: (float(row["mean"]), int(row["n"])) for row in rows}

    async def _runs(self) -> None:
        while True:
            await self.look_at_runs()
            await asyncio.sleep(RUNS_S)
