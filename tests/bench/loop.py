"""The whole loop without training: messages a second through everything, and event-to-table lag.

Two phases on one installation (4 partitions, flush every second, 2 nodes, no Dagster), each message
followed by the demo's four opinions: open loop at the demo's rate, where lag is measured, and
closed loop with 32 messages at once, where throughput is. The client shares the machine.

Lag is from the last token (inference) or admission (feedback) to the moment the Delta commit that
holds the row appeared in the table's log.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
from rich.console import Console

from afterbay.platform.demo import stored
from afterbay.platform.demo.commands import Afterbay
from afterbay.platform.demo.display import Display
from afterbay.platform.demo.inputs import prepare
from afterbay.platform.demo.plan import Planned, plan
from afterbay.platform.demo.session import Session
from afterbay.platform.demo.settings import LABELS, DemoSettings
from afterbay.platform.demo.summary import percentile
from afterbay.schemas import ids
from tests.bench.harness import Figure

OPEN_S = 30.0
CLOSED_S = 20.0
AT_ONCE = 32
_DRAIN_S = 120.0


def measure(folder: Path) -> list[Figure]:
    """Run both phases."""
    return asyncio.run(_measure(folder))


async def _measure(folder: Path) -> list[Figure]:
    home = folder / "home"
    settings = DemoSettings(home=home, env=dict(os.environ), seconds=OPEN_S)
    display = Display(Console())
    since_id = ids.new_id(datetime.now(UTC))
    async with _session(settings, folder) as (session, afterbay):
        async with session.watched(display):
            await session.play()
        answered = len(session.player.play.answers)
        await stored.wait_until_stored(afterbay, session.accepted(since_id), _DRAIN_S)
        lag_until = time.time()
        display.say(f"closed loop, {AT_ONCE} at once, {CLOSED_S:.0f} s")
        begin = time.time()
        await _closed_loop(session, settings)
        accepted = session.accepted(since_id)
        complete = await stored.wait_until_stored(afterbay, accepted, _DRAIN_S)
    if not complete:
        raise RuntimeError(
            f"some events are in no table after {_DRAIN_S:.0f} s; see {home / 'run'}"
        )
    commits = {table: list(_commits(home / "lake" / table)) for table in ("inference", "feedback")}
    messages = len(session.player.play.answers) - answered
    # the drain looks once a second; the commits know when the last row came
    end = max(at for rows in commits.values() for _, at, _ in rows)
    lags = {
        table: [at - since for _, at, since in rows if at < lag_until]
        for table, rows in commits.items()
    }
    return [
        Figure(
            name="messages through everything",
            value=messages / (end - begin),
            unit="messages/s",
            n=messages,
        ),
        *(
            Figure(
                name=f"{table} to table lag {name}, open loop {settings.rate:g}/s",
                value=percentile(values, share) or 0.0,
                unit="s",
                n=len(values),
            )
            for table, values in lags.items()
            for name, share in (("p50", 0.5), ("p99", 0.99))
        ),
    ]


@asynccontextmanager
async def _session(settings: DemoSettings, folder: Path) -> AsyncIterator[tuple[Session, Afterbay]]:
    """A running installation with a first policy, and a client of it."""
    afterbay = Afterbay(settings.platform_env())
    inputs = prepare(settings, folder)
    ports = ("--port", "0", "--broker-port", "0", "--no-dagster")
    try:
        up = await afterbay.json("up", "--detach", "--json", *ports)
        key = (await afterbay.json("apikey", "create", "bench", "--json"))["key"]
        files = ("--messages", str(inputs.warm_file), "--tools", str(inputs.tools_file))
        await afterbay.json("policy", "warmstart", *files, "--labels", str(LABELS))
        session = Session(
            settings=settings,
            afterbay=afterbay,
            inputs=inputs,
            addresses=up["addresses"],
            api_key=key,
            stored_before=0,
        )
        try:
            yield session, afterbay
        finally:
            await session.close()
    finally:
        await afterbay.text("down", may_fail=True)


async def _closed_loop(session: Session, settings: DemoSettings) -> None:
    """Keep `AT_ONCE` messages under way, then wait for the last opinion."""
    # a rate far above what can be had: the order of the messages is what is wanted of the plan
    planned = plan(session.inputs.played, rate=1000, seconds=CLOSED_S, seed=2, run="closed")
    items, end = iter(planned), time.monotonic() + CLOSED_S
    async with asyncio.TaskGroup() as workers:
        for _ in range(AT_ONCE):
            workers.create_task(_worker(session, items, end))
    while session.sender.waiting:
        await asyncio.sleep(0.1)


async def _worker(session: Session, items: Iterator[Planned], end: float) -> None:
    while time.monotonic() < end and (item := next(items, None)) is not None:
        await session.player.ask(item, time.perf_counter())


def _commits(table: Path) -> Iterator[tuple[str, float, float]]:
    """(event id, when its commit appeared, when the event happened), seconds since the epoch."""
    for commit in sorted((table / "_delta_log").glob("*.json")):
        at = commit.stat().st_mtime
        for line in commit.read_text("utf-8").splitlines():
            added = json.loads(line).get("add")
            if added and added["dataChange"]:
                for event_id, since in _events(table / added["path"]):
                    yield event_id, at, since


def _events(file: Path) -> Iterator[tuple[str, float]]:
    names = pq.read_schema(file).names
    timed = {"completed_at"} & set(names)
    rows = pq.read_table(file, columns=["event_id", *timed]).to_pylist()
    for row in rows:
        happened = row.get("completed_at") or ids.minted_at(row["event_id"])
        if happened is not None:
            yield row["event_id"], happened.timestamp()
