"""Chat completions: admit, assign, generate, record, answer.

In:   `ChatRequest`s of a caller
Out:  whole answers, or streams of chunks
Refuses: requests there is no room or no node for (ApiError 503); tools that cannot be spelled (400)
Never: lets an answer's last byte out before its record is in the ring

Every admitted request ends in one record, or in an error and none:
* the client leaves while its answer is streamed: the answer is finished and recorded all the same
* a node refuses, dies or falls silent before it said anything: another node is asked, attempt + 1
* it does so after a part was shown: the stream ends with an error, and what was shown is recorded
  as not trainable
* nobody answers: 503, no record, because nothing was said
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from afterbay.platform.bus import Generate, InferenceAssigned, InferenceRequest, NodeToken
from afterbay.platform.gateway.answer import Admitted, Answer, Json
from afterbay.platform.gateway.dispatch import Dispatcher, Silent
from afterbay.platform.gateway.errors import ApiError, unavailable
from afterbay.platform.gateway.journal import Journal
from afterbay.platform.gateway.wire import ChatRequest
from afterbay.platform.ring import Reservation
from afterbay.schemas import ids
from afterbay.schemas.clock import Clock, micros
from afterbay.streams.keys.pseudonyms import Pseudonyms

MAX_ATTEMPTS = 3

Show = Callable[[Json], None]
"""Where chunks of a streamed answer go."""


class Chat:
    """The service behind `POST /v1/chat/completions`. One event loop."""

    def __init__(
        self,
        *,
        dispatcher: Dispatcher,
        journal: Journal,
        pseudonyms: Pseudonyms,
        clock: Clock,
        policy: str,
    ) -> None:
        self._dispatcher = dispatcher
        self._journal = journal
        self._pseudonyms = pseudonyms
        self._clock = clock
        self._policy = policy
        self._under_way: set[asyncio.Task[Answer]] = set()

    def admit(self, request: ChatRequest, session: str | None) -> Admitted:
        """Give the request its ids and pseudonyms; `session` is what the header says."""
        now = self._clock.now()
        named = session or str((request.metadata or {}).get("session_id") or "")
        named = named or ids.new_id(now)
        person = request.safety_identifier or request.user or named
        return Admitted(
            inference_id=ids.new_id(now),
            request_id=ids.new_id(now),
            request=request,
            policy=self._policy,
            session_id=self._pseudonyms.of("session", named),
            subject=self._pseudonyms.of("subject", person),
            session=named,
            created_s=int(now.timestamp()),
        )

    async def answer(self, admitted: Admitted, body_bytes: int) -> Json:
        """The whole answer."""
        return (await asyncio.shield(self._begin(admitted, body_bytes, None))).completion()

    async def stream(self, admitted: Admitted, body_bytes: int) -> AsyncIterator[Json]:
        """Chunks as they come. Raises ApiError before the first one, or gives an error chunk."""
        shown: asyncio.Queue[Json | None] = asyncio.Queue()
        task = self._begin(admitted, body_bytes, shown.put_nowait)
        task.add_done_callback(lambda _: shown.put_nowait(None))
        while (chunk := await shown.get()) is not None:
            yield chunk
        answer = await task
        if answer.ended is None:  # its record is kept; the client must not take it for whole
            raise ApiError(502, "node_gone", "the node died in mid-answer; ask again")
        for chunk in answer.closing():
            yield chunk

    async def finish(self, within_s: float) -> None:
        """Wait for answers under way; their clients may have left already."""
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=within_s)

    def _begin(
        self, admitted: Admitted, body_bytes: int, show: Show | None
    ) -> asyncio.Task[Answer]:
        """Answer in a task of its own, which outlives a client that leaves."""
        reservation = self._journal.admit(body_bytes)
        task = asyncio.get_running_loop().create_task(self._run(admitted, reservation, show))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        # a client that left never asks for the outcome; without this asyncio would log it
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return task

    async def _run(self, admitted: Admitted, reservation: Reservation, show: Show | None) -> Answer:
        try:
            return await self._attempts(admitted, reservation, show)
        finally:
            self._journal.release(reservation)

    async def _attempts(
        self, admitted: Admitted, reservation: Reservation, show: Show | None
    ) -> Answer:
        failed: list[str] = []
        for attempt in range(1, MAX_ATTEMPTS + 1):
            assigned = await self._assign(admitted, attempt, failed)
            answer = Answer(admitted, assigned, micros(self._clock.now()))
            if await self._heard(answer, show):
                self._keep(answer, reservation)
                return answer
            failed.append(assigned.node_id)
        raise unavailable("no_node", "no node could answer; try again shortly")

    async def _assign(
        self, admitted: Admitted, attempt: int, failed: list[str]
    ) -> InferenceAssigned:
        ask = InferenceRequest(
            request_id=admitted.request_id,
            attempt=attempt,
            session_id=admitted.session_id,
            policy=admitted.policy,
            exclude=tuple(failed),
        )
        try:
            assigned = await self._dispatcher.assign(ask)
        except Silent:
            raise unavailable("no_scheduler", "the scheduler is away; try again shortly") from None
        if assigned.error is not None:
            raise unavailable(
                assigned.error, f"nobody can answer now ({assigned.error}); try again"
            )
        return assigned

    async def _heard(self, answer: Answer, show: Show | None) -> bool:
        """Hear one attempt out; False if another node should be asked."""
        request = answer.admitted.request
        ask = Generate(
            request_id=answer.admitted.request_id,
            attempt=answer.assigned.attempt,
            digest=answer.assigned.digest,
            messages=tuple(message.plain() for message in request.messages),
            tools=request.tool_names,
            sampling=request.sampling,
            max_tokens=request.limit,
            stream=show is not None,
        )
        try:
            async for message in self._dispatcher.generate(answer.assigned.address, ask):
                if message.refused is not None:
                    return _refused(answer, message)
                tell(answer, message, show)
        except Silent:
            return bool(answer.tokens)
        return True

    def _keep(self, answer: Answer, reservation: Reservation) -> None:
        record = answer.record(micros(self._clock.now()))
        if record is None:
            raise unavailable("no_node", "a node ended without an answer; try again shortly")
        self._journal.append(record, reservation)


def tell(answer: Answer, message: NodeToken, show: Show | None) -> None:
    """Take in what a node said, and show what there is to show."""
    first = answer.began is None
    tokens = answer.add(message)
    if show is None:
        return
    if first:
        show(answer.opening())
    chunk = answer.chunk(tokens)
    if chunk is not None:
        show(chunk)


def _refused(answer: Answer, message: NodeToken) -> bool:
    """True if a part was shown already, so that no other node may be asked."""
    if message.refused == "tools":
        raise ApiError(
            400,
            "tool_not_known",
            "a tool's name cannot be spelled by this policy's tokenizer; offer tools it was "
            "trained with",
            param="tools",
        )
    return bool(answer.tokens)
