"""One answer while it grows: what nodes said, what the client is shown, what the log is told.

In:   the admitted request, the scheduler's assignment, `NodeToken`s
Out:  OpenAI response objects and stream chunks; the `RawInference` record
Never: shows a token it does not record
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from afterbay.platform.bus import Began, Ended, InferenceAssigned, NodeToken, Token
from afterbay.platform.gateway.wire import ChatRequest
from afterbay.platform.records import RawInference
from afterbay.schemas.events import Segment, ToolCall
from afterbay.schemas.ids import CHAT_PREFIX

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """A request that will be answered. Made by the chat service."""

    inference_id: str
    request_id: str
    request: ChatRequest
    policy: str
    session_id: str
    """Pseudonym."""
    subject: str
    """Pseudonym."""
    session: str
    """The client's own session id, or the new one it is given; shown to the client only."""
    created_s: int
    """When it was admitted, seconds since the epoch."""


@dataclass(slots=True)
class Answer:
    """What one attempt has given so far. One per attempt; made and read by the chat service."""

    admitted: Admitted
    assigned: InferenceAssigned
    dispatched_us: int
    began: Began | None = None
    tokens: list[Token] = field(default_factory=list)
    ended: Ended | None = None

    def add(self, message: NodeToken) -> tuple[Token, ...]:
        """Take in a message of the node; its tokens."""
        self.began = self.began or message.began
        self.tokens += message.tokens
        self.ended = message.ended
        return message.tokens

    @property
    def text(self) -> str:
        """The response text."""
        return "".join(token.text for token in self.tokens)

    @property
    def tool_calls(self) -> list[ToolCall]:
        """The tool call that the response names, if it ended and tools were offered."""
        tool = self.ended.tool if self.ended else None
        if tool is None or not self.admitted.request.tools:
            return []
        return [ToolCall(id=f"call_{self.admitted.inference_id[-12:]}", name=tool, arguments="{}")]

    @property
    def finish_reason(self) -> str:
        """tool_calls, stop, length, or error for an answer that was cut by a fault."""
        if self.ended is None:
            return "error"
        if self.ended.finish_reason == "tool_calls" and not self.tool_calls:
            return "stop"
        return self.ended.finish_reason

    # --- for the client

    def completion(self) -> Json:
        """The whole answer, `chat.completion`."""
        message: Json = {"role": "assistant", "content": None, "refusal": None}
        if self.tool_calls:
            message["tool_calls"] = self._calls()
        else:
            message["content"] = self.text
        choice = {
            "index": 0,
            "message": message,
            "logprobs": self._logprobs(self.tokens),
            "finish_reason": self.finish_reason,
        }
        return {**self._head("chat.completion"), "choices": [choice], "usage": self._usage()}

    def chunk(self, tokens: tuple[Token, ...]) -> Json | None:
        """One piece of a streamed answer; None if it has nothing to show yet.

        With tools offered the text is a tool's name, which is shown whole once it is known.
        """
        if self.admitted.request.tools:
            return None
        text = "".join(token.text for token in tokens)
        return self._chunk({"content": text}, None, tokens) if text else None

    def opening(self) -> Json:
        """The first chunk: whose answer it is."""
        return self._chunk({"role": "assistant", "content": None if self._calling else ""}, None)

    def closing(self) -> list[Json]:
        """The last chunks: the tool call, how it ended, and the count of tokens if asked for."""
        chunks = []
        if self.tool_calls:
            calls = [{"index": n, **call} for n, call in enumerate(self._calls())]
            chunks.append(self._chunk({"tool_calls": calls}, None, tuple(self.tokens)))
        elif self._calling:
            chunks.append(self._chunk({"content": self.text}, None, tuple(self.tokens)))
        chunks.append(self._chunk({}, self.finish_reason))
        if self.admitted.request.include_usage:
            head = self._head("chat.completion.chunk")
            chunks.append({**head, "choices": [], "usage": self._usage()})
        return chunks

    @property
    def _calling(self) -> bool:
        return bool(self.admitted.request.tools)

    def _chunk(self, delta: Json, finish: str | None, tokens: tuple[Token, ...] = ()) -> Json:
        choice = {
            "index": 0,
            "delta": delta,
            "logprobs": self._logprobs(tokens) if tokens else None,
            "finish_reason": finish,
        }
        return {**self._head("chat.completion.chunk"), "choices": [choice]}

    def _head(self, kind: str) -> Json:
        admitted = self.admitted
        return {
            "id": CHAT_PREFIX + admitted.inference_id,
            "object": kind,
            "created": admitted.created_s,
            "model": admitted.request.model,
            "system_fingerprint": self.assigned.digest[:16],
        }

    def _calls(self) -> list[Json]:
        return [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in self.tool_calls
        ]

    def _usage(self) -> Json:
        prompt = len(self.began.prompt_ids) if self.began else 0
        said = len(self.tokens)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": said,
            "total_tokens": prompt + said,
        }

    def _logprobs(self, tokens: tuple[Token, ...] | list[Token]) -> Json | None:
        if not self.admitted.request.logprobs:
            return None
        return {"content": [_logprob(token) for token in tokens], "refusal": None}

    # --- for the log

    def record(self, now_us: int) -> RawInference | None:
        """What the ring is told; None if nothing was said, so that there is nothing to keep."""
        began, admitted, request = self.began, self.admitted, self.admitted.request
        if began is None:
            return None
        why = _untrainable(self)
        return RawInference(
            event_id=admitted.inference_id,
            request_id=admitted.request_id,
            attempt=self.assigned.attempt,
            session_id=admitted.session_id,
            turn=request.turn,
            subject=admitted.subject,
            policy=admitted.policy,
            arm=self.assigned.arm,
            arm_probability=self.assigned.probability,
            snapshot_id=began.snapshot_id,
            digest=began.digest,
            model=request.model,
            tokenizer=began.tokenizer,
            tools=list(request.tool_names),
            prompt=began.prompt,
            response=self.text,
            prompt_ids=list(began.prompt_ids),
            prompt_ends=list(began.prompt_ends),
            response_ids=[token.id for token in self.tokens],
            response_ends=[token.end for token in self.tokens],
            response_logprobs=[token.logprob for token in self.tokens],
            trainable=why is None,
            untrainable_reason=why,
            segments=[Segment(start=0, snapshot_id=began.snapshot_id)],
            sampling=request.sampling,
            tool_calls=self.tool_calls,
            finish_reason=self.finish_reason,
            dispatched_us=self.dispatched_us,
            started_us=began.started_us,
            first_token_us=began.first_token_us,
            completed_us=self.ended.completed_us if self.ended else now_us,
            node_id=began.node_id,
        )


def _untrainable(answer: Answer) -> str | None:
    """Why no trainer may use the answer; None if one may."""
    if answer.ended is None:
        return "interrupted"
    if answer.ended.tool is None:
        return "cut"
    if answer.admitted.request.sampling.temperature == 0:
        return "greedy"
    return None if all(math.isfinite(t.logprob) for t in answer.tokens) else "nan_logprob"


def _logprob(token: Token) -> Json:
    return {
        "token": token.text,
        "logprob": token.logprob,
        "bytes": list(token.text.encode()),
        "top_logprobs": [],
    }
