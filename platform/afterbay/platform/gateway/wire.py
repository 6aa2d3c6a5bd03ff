"""What clients may send: chat requests as the OpenAI API has them, and feedback.

In:   a body of at most `MAX_BODY` bytes
Out:  `ChatRequest`, `FeedbackRequest`
Refuses: what is no such object, with the place and the type expected (ApiError 400 or 422)
Never: refuses a chat field it does not know: clients are newer than servers
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import msgspec

from afterbay.platform.gateway.errors import ApiError
from afterbay.schemas.events import Sampling

MOST_TOOLS = 128
"""Tools of one request, as the OpenAI API has it."""
LEAST_TEMPERATURE = 0.01
"""Below it an answer is the greedy one: float32 cannot tell, and nothing is learned from it."""
LEAST_TOP_P = 1e-6
"""Below it at most one token is left anyway."""
MAX_BODY = 1024 * 1024
"""Bytes of a request body; more is answered with 413."""

Unit = Annotated[float, msgspec.Meta(ge=0, le=1)]
Short = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
_TOOL_NAME = Annotated[str, msgspec.Meta(pattern="^[a-zA-Z0-9_-]{1,64}$")]


class Part(msgspec.Struct):
    """One part of a message's content."""

    type: str
    text: str = ""


class ChatMessage(msgspec.Struct):
    """One message of the conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[Part] | None = None
    name: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None

    def plain(self) -> dict[str, Any]:
        """What a node is given of it: role, text, and the names of called tools."""
        text = self.content
        if isinstance(text, list):
            text = " ".join(part.text for part in text)
        called = [_called(call) for call in self.tool_calls or ()]
        return {"role": self.role, "content": text or "", "tool_calls": called}


class Function(msgspec.Struct):
    """A function that may be called."""

    name: _TOOL_NAME


class Tool(msgspec.Struct):
    """A tool offered."""

    type: Literal["function"]
    function: Function


class ChatRequest(msgspec.Struct):
    """`POST /v1/chat/completions`."""

    model: Short
    messages: Annotated[list[ChatMessage], msgspec.Meta(min_length=1)]
    tools: Annotated[list[Tool], msgspec.Meta(max_length=MOST_TOOLS)] = []  # copied by msgspec
    tool_choice: Literal["auto", "required"] | None = None
    stream: bool = False
    stream_options: dict[str, Any] | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, msgspec.Meta(ge=0, lt=2**31)] | None = None
    min_p: Unit | None = None
    seed: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    n: Literal[1] | None = None
    logprobs: bool | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=1, lt=2**31)] | None = None
    max_completion_tokens: Annotated[int, msgspec.Meta(ge=1, lt=2**31)] | None = None
    user: str | None = None
    safety_identifier: str | None = None
    metadata: dict[str, Any] | None = None

    @property
    def turn(self) -> int:
        """User messages in the request."""
        return sum(message.role == "user" for message in self.messages)

    @property
    def tool_names(self) -> tuple[str, ...]:
        """Names of the tools offered, each once, in order."""
        return tuple(dict.fromkeys(tool.function.name for tool in self.tools))

    @property
    def limit(self) -> int | None:
        """Most response tokens; None if the client does not care."""
        return self.max_completion_tokens or self.max_tokens

    @property
    def sampling(self) -> Sampling:
        """Sampling parameters, defaults filled in; the ones really sampled with."""
        warm = 1.0 if self.temperature is None else self.temperature
        return Sampling(
            temperature=warm if warm >= LEAST_TEMPERATURE else 0.0,
            top_p=1.0 if self.top_p is None else max(self.top_p, LEAST_TOP_P),
            top_k=self.top_k or 0,
            min_p=self.min_p or 0.0,
            seed=self.seed,
            logprobs_mode="processed",
        )

    @property
    def include_usage(self) -> bool:
        """True if a stream is to end with a chunk that counts tokens."""
        return bool((self.stream_options or {}).get("include_usage"))


class FeedbackRequest(msgspec.Struct, forbid_unknown_fields=True):
    """`POST /v1/feedback`. Unknown fields are refused: a misspelt `score` would be lost."""

    inference_id: Short
    source: Literal["person", "rule", "model"]
    rater: Short | None = None
    score: Unit | None = None
    label: Short | None = None
    comment: Annotated[str, msgspec.Meta(max_length=100_000)] | None = None
    step: Annotated[int, msgspec.Meta(ge=0, lt=2**31)] | None = None
    given_at: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    subject: Short | None = None


_chat = msgspec.json.Decoder(ChatRequest)
_feedback = msgspec.json.Decoder(FeedbackRequest)


def read_chat(body: bytes) -> ChatRequest:
    """The chat request in `body`; ApiError 400 if it is none."""
    try:
        return _chat.decode(body)
    except msgspec.ValidationError as error:
        raise ApiError(400, "invalid_request", _place(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise ApiError(400, "invalid_json", "the body is not JSON; send one JSON object") from None


def _in_range(at: datetime) -> bool:
    """True if `at` can be told in UTC: years 1 to 9999."""
    try:
        at.astimezone(UTC)
    except OverflowError:
        return False
    return True


def read_feedback(body: bytes) -> FeedbackRequest:
    """The feedback in `body`; ApiError 400 or 422 if it is none, or says nothing."""
    try:
        found = _feedback.decode(body)
    except msgspec.ValidationError as error:
        raise ApiError(422, "invalid_feedback", _place(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise ApiError(400, "invalid_json", "the body is not JSON; send one JSON object") from None
    if found.score is None and found.label is None and found.comment is None:
        message = "feedback without score, label and comment says nothing; give at least one"
        raise ApiError(422, "empty_feedback", message)
    if found.given_at is not None and not _in_range(found.given_at):
        message = "given_at lies outside the years 1 to 9999 in UTC"
        raise ApiError(422, "invalid_feedback", message)
    return found


def _place(error: msgspec.ValidationError) -> str:
    """msgspec's own words: expectation, type found, path; for enumerations the bad value too."""
    text = str(error)
    if text.startswith("Invalid enum value"):
        return "a value is not one of those allowed" + text[text.rfind(" - at") :]
    if text.startswith("Object contains unknown field"):
        return "the object has a field that is not known; see the documented fields"
    return text


def _called(call: dict[str, Any]) -> dict[str, Any]:
    function = call.get("function")
    name = function.get("name") if isinstance(function, dict) else None
    return {"function": {"name": str(name or "")}}
