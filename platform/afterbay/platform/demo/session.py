"""One play against a running platform: player, judges, feedback, watch, and what they leave.

In:   addresses, an API key, `Inputs`
Out:  answers, accepted ids, trainings seen, the leak scan
Never: goes on after `close`
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from afterbay.platform.demo import leak
from afterbay.platform.demo.commands import Afterbay
from afterbay.platform.demo.display import Display, Now
from afterbay.platform.demo.feedback import FeedbackSender
from afterbay.platform.demo.hearing import Hearing
from afterbay.platform.demo.inputs import Inputs
from afterbay.platform.demo.opinions import Judges, Shuffler
from afterbay.platform.demo.plan import Planned, plan
from afterbay.platform.demo.player import Player
from afterbay.platform.demo.recording import Leak, Span, Training
from afterbay.platform.demo.settings import POLICY, DemoSettings
from afterbay.platform.demo.stored import Accepted
from afterbay.platform.demo.watch import Watch
from afterbay.schemas import ids
from afterbay.schemas.errors import Unavailable

READY_S = 60.0
FEEDBACK_S = 60.0
"""After the last message, at most so long is waited for opinions still to come."""


class Session:
    """Everything the demo has at work while it plays."""

    def __init__(
        self,
        *,
        settings: DemoSettings,
        afterbay: Afterbay,
        inputs: Inputs,
        addresses: dict[str, str],
        api_key: str,
        stored_before: int,
    ) -> None:
        """`stored_before` is the number of inferences that the home holds."""
        self.inputs = inputs
        self._settings = settings
        self._addresses = addresses
        self._run = f"demo-{int(time.time())}"
        self.since = datetime.now(UTC)
        self.sender = FeedbackSender(addresses["gateway"], api_key, self._run)
        judges = Judges(inputs.played, inputs.labelled, settings.seed)
        shuffler = Shuffler(settings.seed) if settings.shuffle else None
        self.hearing = Hearing(judges, self.sender, shuffler)
        self.player = Player(
            messages=inputs.played,
            tools=inputs.tools,
            address=addresses["gateway"],
            api_key=api_key,
            model=POLICY,
            on_answer=self.hearing.answer,
        )
        self.watch = Watch(
            afterbay,
            addresses.get("dagster"),
            self.since.timestamp(),
            self.hearing.answered_at,
        )
        self.watch.stored_before = stored_before
        self._probes: set[str] = set()

    def plan(self) -> list[Planned]:
        """What will be played, and when."""
        return plan(
            self.inputs.played,
            rate=self._settings.rate,
            seconds=self._settings.seconds,
            seed=self._settings.seed,
            run=self._run,
        )

    @asynccontextmanager
    async def watched(self, display: Display) -> AsyncIterator[None]:
        """The platform ready, and watched and shown until the block ends."""
        await self._until_ready()
        self.since = datetime.now(UTC)
        now = Now(
            planned=int(self._settings.rate * self._settings.seconds),
            play=self.player.play,
            sender=self.sender,
            seen=self.watch.seen,
            started=time.monotonic(),
        )
        lookers = [asyncio.create_task(t) for t in (self.watch.run(), display.follow(now))]
        try:
            yield
        finally:
            for looker in lookers:
                looker.cancel()
            await asyncio.gather(*lookers, return_exceptions=True)

    async def play(self) -> None:
        """Play all messages, and wait for the last opinion."""
        await self.player.run(self.plan())
        end = time.monotonic() + FEEDBACK_S
        while self.sender.waiting and time.monotonic() < end:
            await asyncio.sleep(0.2)

    async def settle(self, timeout_s: float) -> bool:
        """Wait until nobody has anything left to take in, and nothing is trained or judged."""
        end = time.monotonic() + timeout_s
        self.watch.seen.quiet_looks = 0
        # one quiet look may fall between a reward that was sent and the sink that takes it in
        while self.watch.seen.quiet_looks < 2 or any(r.under_way for r in self.watch.seen.runs):
            if time.monotonic() > end:
                return False
            await asyncio.sleep(0.2)
        await self.watch.look_at_runs()
        return True

    async def _until_ready(self) -> None:
        """Wait until a node serves the first policy."""
        end = time.monotonic() + READY_S
        while (answered := await self.player.probe(self.inputs.labelled[0].text)) is None:
            if time.monotonic() > end:
                raise Unavailable(
                    f"no node serves a policy after {READY_S:.0f} s; see `afterbay status` and the "
                    f"logs in {self._settings.home / 'run'}"
                )
            await asyncio.sleep(0.5)
        self._probes.add(answered)
        self.watch.stored_before += 1

    def accepted(self, since_id: str) -> Accepted:
        """Ids that HTTP accepted so far."""
        answered = [answer.inference_id for answer in self.player.play.answers]
        known = (ids.inference_id(text) for text in (*self._probes, *answered))
        return Accepted(
            inference={found for found in known if found is not None},
            feedback=set(self.sender.accepted),
            since_id=since_id,
            since=self.since,
        )

    def trainings(self) -> list[Training]:
        """Trainings that made a snapshot, in order."""
        begin = self.since.timestamp()
        return [
            Training(
                snapshot_id=run.snapshot_id,
                span=Span(run.trainer[0] - begin, run.trainer[1] - begin),
                metrics=run.metrics,
            )
            for run in self.watch.seen.runs
            if run.trainer is not None and run.snapshot_id is not None
        ]

    async def leak(self, snapshot_id: str) -> Leak:
        """Look for everything that was planted, in the text and in `snapshot_id`'s tokens."""
        planted = [value for message in self.inputs.played for value in message.planted]
        return await asyncio.to_thread(
            leak.scan,
            self._settings.home,
            [*planted, *self.hearing.planted],
            self._addresses["kafka"],
            self._settings.home / "snapshots" / snapshot_id / "tokenizer.json",
        )

    async def close(self) -> None:
        """Stop sending."""
        await asyncio.to_thread(self.sender.close, abandon=True)
        await self.player.close()
