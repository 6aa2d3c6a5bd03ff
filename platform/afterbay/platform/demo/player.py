"""Plays customer messages through the gateway with the OpenAI client, open loop.

In:   `Planned` messages, tools, an address, an API key
Out:  `Answer`s as they come, to the function given; `Play` figures that the display reads
Never: waits for one answer before it sends the next message; a slow system is measured as slow,
      because latency runs from the time a message was due
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from openai import APIConnectionError, APIStatusError, APITimeoutError, AsyncOpenAI
from openai.types.chat import ChatCompletion

from afterbay.platform.demo.messages import Message
from afterbay.platform.demo.plan import Planned

TIMEOUT_S = 20.0
HISTORY = 6
"""Chat messages of a session that are sent again with the next one: two exchanges."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One answered message. Made by the player, read by the judges and the recording."""

    planned: Planned
    inference_id: str
    """Id the platform gave, with `chatcmpl-`."""
    tool: str | None
    """Tool it called; None if it called none."""
    latency_s: float
    """From the time it was due until the whole answer was here."""


@dataclass(slots=True)
class Play:
    """What the player has seen so far. Written by the player, read by the display."""

    sent: int = 0
    answers: list[Answer] = field(default_factory=list)
    failed: Counter[str] = field(default_factory=Counter)
    """Messages without an answer, by what went wrong."""
    late_s: deque[float] = field(default_factory=lambda: deque(maxlen=500))
    """How late the player itself sent the latest messages; part of their latency."""


class Player:
    """One play of planned messages."""

    def __init__(  # what it plays, and where to
        self,
        *,
        messages: Sequence[Message],
        tools: Mapping[str, Sequence[str]],
        address: str,
        api_key: str,
        model: str,
        on_answer: Callable[[Answer], None],
    ) -> None:
        self.play = Play()
        self._messages = messages
        self._model = model
        self._on_answer = on_answer
        # one answer too many is a double in the tables' eyes: the client must not retry by itself
        self._client = AsyncOpenAI(
            api_key=api_key, base_url=f"{address}/v1", max_retries=0, timeout=TIMEOUT_S
        )
        self._tools = [_function(tool) for tool in tools]
        self._history: dict[str, list[dict[str, Any]]] = {}

    async def probe(self, text: str) -> str | None:
        """Ask for one answer outside the play, so that the client has loaded all it loads.

        The id of the answered message; None if there was no answer.
        """
        try:
            done = await self._complete([{"role": "user", "content": text}], "probe", "probe")
        except (APIStatusError, APIConnectionError):
            return None
        return done.id

    async def run(self, planned: Sequence[Planned]) -> None:
        """Send everything at its time, and return when the last answer is here."""
        start = time.perf_counter()
        async with asyncio.TaskGroup() as open_requests:
            for item in planned:
                due = start + item.due_s
                await _until(due)
                self.play.late_s.append(time.perf_counter() - due)
                self.play.sent += 1
                open_requests.create_task(self.ask(item, due))

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def ask(self, item: Planned, due: float) -> None:
        """Send one message that was due at `due` (`time.perf_counter()`), and take its answer."""
        chat = self._history.pop(item.session, [])
        chat.append({"role": "user", "content": self._messages[item.message].text})
        try:
            done = await self._complete(chat, item.session, item.subject)
        except (APIStatusError, APIConnectionError) as error:
            self.play.failed[_kind(error)] += 1
            return
        latency = time.perf_counter() - due
        calls = done.choices[0].message.tool_calls or []
        tool = next((call.function.name for call in calls if call.type == "function"), None)
        if not item.last:
            self._history[item.session] = _continued(chat, tool)
        answer = Answer(item, done.id, tool, latency)
        self.play.answers.append(answer)
        self._on_answer(answer)

    async def _complete(
        self, chat: list[dict[str, Any]], session: str, subject: str
    ) -> ChatCompletion:
        return await self._client.chat.completions.create(
            model=self._model,
            messages=[],
            user=subject,
            extra_headers={"X-Afterbay-Session": session},
            # given as extra body, the client sends them as they are instead of walking through
            # every chat message and tool by their types: a third less CPU for each message
            extra_body={"messages": chat, "tools": self._tools, "tool_choice": "required"},
        )


async def _until(moment: float) -> None:
    wait = moment - time.perf_counter()
    # below a millisecond the event loop's clock is coarser than the wait
    if wait > 0.0005:
        await asyncio.sleep(wait)


def _kind(error: APIStatusError | APIConnectionError) -> str:
    if isinstance(error, APIStatusError):
        return f"HTTP {error.status_code}"
    return "timeout" if isinstance(error, APITimeoutError) else "connection"


def _continued(chat: list[dict[str, Any]], tool: str | None) -> list[dict[str, Any]]:
    """The chat with the answer and what the tool gave back, cut to the last `HISTORY` messages."""
    if tool is None:
        return [*chat, {"role": "assistant", "content": "…"}][-HISTORY:]
    call = {"id": "call_1", "type": "function", "function": {"name": tool, "arguments": "{}"}}
    answer = {"role": "assistant", "content": None, "tool_calls": [call]}
    result = {"role": "tool", "tool_call_id": "call_1", "content": "done"}
    return [*chat, answer, result][-HISTORY:]


def _function(tool: str) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {
            "name": tool,
            "description": f"Hand the customer to {tool.replace('_', ' ')}.",
            "parameters": {"type": "object", "properties": {}},
        },
    }
