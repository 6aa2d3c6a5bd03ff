"""One run of the demo, from nothing to a report.

In:   `DemoSettings`
Out:  `.afterbay/demo/{recording.json,summary.json,report.html}`, an exit code
Refuses: what the platform's commands refuse, with their words
Never: leaves a process behind, whatever happens, unless it was asked to (KEEP=1)
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from afterbay.platform.demo import stored
from afterbay.platform.demo.commands import Afterbay, CommandFailed
from afterbay.platform.demo.display import Display
from afterbay.platform.demo.inputs import Inputs, prepare
from afterbay.platform.demo.recording import (
    Answered,
    Measured,
    Recording,
    Step,
    Training,
)
from afterbay.platform.demo.session import Session
from afterbay.platform.demo.settings import LABELS, DemoSettings
from afterbay.platform.demo.summary import percentile
from afterbay.platform.demo.watch import Seen
from afterbay.schemas import ids

DRAIN_S = 60.0
SETTLE_S = 25.0
"""After the play, at most so long is waited for trainings and canaries under way."""


class Demo:
    """The stages of one run, in their order."""

    def __init__(
        self, settings: DemoSettings, display: Display, afterbay: Afterbay | None = None
    ) -> None:
        self._settings = settings
        self._display = display
        self._afterbay = afterbay or Afterbay(settings.platform_env())
        self._began = time.monotonic()
        self._stages: dict[str, float] = {}

    async def run(self) -> Recording:
        """All stages; the platform is stopped at the end, and whenever something fails."""
        with tempfile.TemporaryDirectory(prefix="afterbay-demo-") as folder:
            with self._stage("messages"):
                inputs = prepare(self._settings, Path(folder))
            self._display.say(
                f"{inputs.source}: {len(inputs.played):,} messages to play, {LABELS} labels, "
                f"{len(inputs.tools)} tools"
            )
            async with self._platform() as addresses:
                return await self._with_platform(inputs, addresses)

    async def _with_platform(self, inputs: Inputs, addresses: dict[str, str]) -> Recording:
        since_id = ids.new_id(datetime.now(UTC))
        with self._stage("warm start"):
            key = (await self._afterbay.json("apikey", "create", "demo", "--json"))["key"]
            first = await self._warm_start(inputs)
            stored_before = (await stored.counts(self._afterbay)).tables["inference"]
        session = Session(
            settings=self._settings,
            afterbay=self._afterbay,
            inputs=inputs,
            addresses=addresses,
            api_key=key,
            stored_before=stored_before,
        )
        try:
            async with session.watched(self._display):
                with self._stage("play"):
                    await session.play()
                with self._stage("drain"):
                    accepted = session.accepted(since_id)
                    await self._drain(session, accepted)
        finally:
            await session.close()
        with self._stage("prove and measure"):
            return await self._recording(session, accepted, first)

    @asynccontextmanager
    async def _platform(self) -> AsyncIterator[dict[str, str]]:
        """Everything started; stopped again, unless it is to be kept and all went well."""
        self._display.say("starting Kafka, gateway, scheduler, nodes, streams, Dagster …")
        try:
            with self._stage("start"):
                addresses = await self._up()
            self._display.say(", ".join(f"{name} {at}" for name, at in addresses.items()))
            yield addresses
        except CommandFailed as error:
            # an `up` that failed has stopped what it started; what runs then is somebody else's
            if not error.command.startswith("up "):
                await self._stop()
            raise
        except BaseException:
            await self._stop()
            raise
        if self._settings.keep:
            self._display.page("left running; `afterbay down` stops it", list(addresses.items()))
        else:
            with self._stage("stop"):
                await self._stop()

    async def _up(self) -> dict[str, str]:
        ports = ("--port", "0", "--broker-port", "0", "--dagster-port", "0")
        up = await self._afterbay.json("up", "--detach", "--json", *ports)
        return dict(up["addresses"])

    async def _stop(self) -> None:
        # Ctrl-C may come again while this runs; the platform is stopped all the same
        stopping = asyncio.ensure_future(self._afterbay.text("down", may_fail=True))
        while not stopping.done():
            try:
                await asyncio.shield(stopping)
            except asyncio.CancelledError:
                self._display.say("stopping everything …")

    async def _warm_start(self, inputs: Inputs) -> str:
        """Publish a first policy; the id of its snapshot."""
        made = await self._afterbay.json(
            *("policy", "warmstart", "--messages", str(inputs.warm_file)),
            *("--tools", str(inputs.tools_file), "--labels", str(LABELS)),
            *("--seed", str(self._settings.seed)),
        )
        self._display.say(f"warm start on {LABELS} labels: snapshot {made['snapshot_id']}")
        return str(made["snapshot_id"])

    async def _drain(self, session: Session, accepted: stored.Accepted) -> None:
        """Wait until every accepted id is stored and nothing is trained or judged any more."""
        if not await stored.wait_until_stored(self._afterbay, accepted, DRAIN_S):
            self._display.say(f"some accepted events are in no table after {DRAIN_S:.0f} s")
        if not await session.settle(SETTLE_S):
            self._display.say(f"still at work after {SETTLE_S:.0f} s; going on")

    async def _recording(
        self, session: Session, accepted: stored.Accepted, first: str
    ) -> Recording:
        ask = self._afterbay
        proof = await ask.json("prove", "--json", "--wait", "20", may_fail=True)
        steps = await stored.steps(ask, accepted)
        trainings = session.trainings()
        last = self._measured_last(steps, trainings, first)
        before, after, leak = await asyncio.gather(
            self._measure(session.inputs, first),
            self._measure(session.inputs, last),
            session.leak(last),
        )
        counted = await stored.counts(ask)
        rewards, ranges = await stored.experience(ask, accepted)
        seen, play = session.watch.seen, session.player.play
        return Recording(
            started_at=accepted.since.isoformat(timespec="milliseconds"),
            seed=self._settings.seed,
            shuffled=self._settings.shuffle,
            source=session.inputs.source,
            rate=self._settings.rate,
            play_s=self._stages["play"],
            total_s=time.monotonic() - self._began,
            stages=self._stages,
            sent=play.sent,
            answered=[Answered(a.planned.due_s, a.latency_s * 1000) for a in play.answers],
            failed=dict(play.failed),
            feedback_failed=dict(session.sender.failed),
            heard=session.hearing.heard(),
            late_ms_p99=(percentile(play.late_s, 0.99) or 0.0) * 1000,
            trainings=trainings,
            steps=steps,
            loaded=await stored.loaded(ask, accepted),
            rewards=rewards,
            ranges=ranges,
            events=await stored.events(ask, accepted, counted),
            tables=counted.tables,
            doubled=counted.doubled,
            table_lag_s=_lag(seen),
            proof_ok=bool(proof["ok"]),
            proof_differences=[
                f"{d['table']}: {d['count']} {d['kind']}, first at {d['place']}"
                for d in proof["differences"]
            ],
            before=before,
            after=after,
            leak=leak,
            restarts=seen.restarts,
        )

    def _measured_last(self, steps: list[Step], trainings: list[Training], first: str) -> str:
        """The promoted policy; the last candidate, promoted or not, where rewards are shuffled."""
        if self._settings.shuffle and trainings:
            return trainings[-1].snapshot_id
        return next((s.snapshot_id for s in reversed(steps) if s.action == "promoted"), first)

    async def _measure(self, inputs: Inputs, snapshot_id: str) -> Measured:
        found = await self._afterbay.json(
            *("policy", "evaluate", snapshot_id),
            *("--messages", str(inputs.held_out_file), "--tools", str(inputs.tools_file)),
        )
        return Measured(
            snapshot_id=snapshot_id,
            messages=found["messages"],
            greedy=found["greedy_accuracy"],
            sampled=found["sampled_reward"],
        )

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        begin = time.monotonic()
        try:
            yield
        finally:
            self._stages[name] = time.monotonic() - begin


def _lag(seen: Seen) -> dict[str, float]:
    """Percentiles of the age of the newest stored answer."""
    shares = {"p50": percentile(seen.table_age_s, 0.5), "p99": percentile(seen.table_age_s, 0.99)}
    return {name: round(value, 2) for name, value in shares.items() if value is not None}
