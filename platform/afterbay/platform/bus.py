"""Control messages between gateway, scheduler and nodes: msgpack on ZeroMQ, versioned by topic.

In:   a message (`encode`), or the two frames `topic, body` as they came (`decode`)
Out:  the frames, or the message
Refuses: a topic or version not spoken here, and a body that is none: as `NotSpoken`, a value that
      becomes the `bus.error.v2` answer naming what is spoken
Never: carries a clear session or person; a conversation travels from gateway to node only
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import msgspec
import zmq

from afterbay.schemas.errors import Unavailable
from afterbay.schemas.events import Sampling

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
HEARTBEAT_S = 0.25
"""Seconds between two heartbeats of a node."""
_ZMTP_HEARTBEAT_MS = 500
_ZMTP_TIMEOUT_MS = 1_500
_RECONNECT_MS = 50
_RECONNECT_MAX_MS = 400


class Message(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of every control message; `TOPIC` names it and its version on the wire."""

    TOPIC: ClassVar[str] = ""


class InferenceRequest(Message, frozen=True, kw_only=True):
    """Which node shall answer? Gateway to scheduler."""

    TOPIC: ClassVar[str] = "inference.request.v2"

    request_id: str
    attempt: int
    """1 for the first node tried."""
    session_id: str
    """Pseudonym; its salted hash chooses the arm."""
    policy: str
    exclude: tuple[str, ...] = ()
    """Nodes that refused or died in earlier attempts."""


class InferenceAssigned(Message, frozen=True, kw_only=True):
    """This node, with this snapshot. Scheduler to gateway, which logs it as it is."""

    TOPIC: ClassVar[str] = "inference.assigned.v2"

    request_id: str
    attempt: int
    error: str | None = None
    """Why nobody can answer: starting, no_snapshot or no_node; null if `node_id` can."""
    arm: str = ""
    probability: float = 0.0
    """With which the split gives this arm, in (0, 1]."""
    snapshot_id: str = ""
    digest: str = ""
    node_id: str = ""
    address: str = ""
    """ZeroMQ address of the node."""


class Generate(Message, frozen=True, kw_only=True):
    """Answer this conversation. Gateway to node."""

    TOPIC: ClassVar[str] = "node.generate.v2"

    request_id: str
    attempt: int
    digest: str
    """Weights to answer with; a node without them refuses."""
    messages: tuple[dict[str, Any], ...]
    """The conversation, checked and made plain by the gateway; clear text."""
    tools: tuple[str, ...]
    """Names of the tools that may be called; empty: any the policy knows."""
    sampling: Sampling
    max_tokens: int | None = None
    """Response tokens after which the answer is cut; null: the policy's own limit."""
    stream: bool = False
    """False: one `NodeToken` with everything; true: one for each step."""


class Token(msgspec.Struct, frozen=True, array_like=True):
    """One sampled response token."""

    id: int
    logprob: float
    """Natural log-prob under the distribution sampled from."""
    text: str
    end: int
    """End in code points of the response so far."""


class Began(msgspec.Struct, frozen=True, kw_only=True):
    """What the node made of the request; in the first `NodeToken` of an attempt."""

    node_id: str
    snapshot_id: str
    """As loaded by the node."""
    digest: str
    """SHA-256 of the weights as loaded by the node."""
    tokenizer: str
    prompt: str
    """Text as the policy saw it."""
    prompt_ids: tuple[int, ...]
    prompt_ends: tuple[int, ...]
    started_us: int
    first_token_us: int | None


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How the answer ended; in the last `NodeToken` of an attempt."""

    finish_reason: str
    """stop, tool_calls or length."""
    tool: str | None
    """Tool that the response calls; null if it calls none."""
    completed_us: int


class NodeToken(Message, frozen=True, kw_only=True):
    """Tokens of an answer, or the refusal to give one. Node to gateway."""

    TOPIC: ClassVar[str] = "node.token.v2"

    request_id: str
    attempt: int
    began: Began | None = None
    tokens: tuple[Token, ...] = ()
    ended: Ended | None = None
    refused: str | None = None
    """digest (not loaded), busy or failed; nothing else is set then."""


class Holding(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot that a node has loaded."""

    policy: str
    snapshot_id: str
    digest: str


class Heartbeat(Message, frozen=True, kw_only=True):
    """I live, at this address, with these snapshots. Node to scheduler."""

    TOPIC: ClassVar[str] = "heartbeat.v2"

    node_id: str
    address: str
    holds: tuple[Holding, ...]
    busy: int
    """Requests being answered or waiting."""
    leaving: bool = False
    """True in the last heartbeat before it stops: give it nothing more."""


class BusError(Message, frozen=True, kw_only=True):
    """The peer does not speak what it was told. Answer to any message."""

    TOPIC: ClassVar[str] = "bus.error.v2"

    topic: str
    """What was not understood."""
    spoken: tuple[str, ...]
    """Versions of it that the peer speaks; all its topics if it knows none of that name."""


@dataclass(frozen=True, slots=True)
class NotSpoken:
    """Frames that are no message of ours. Made by `decode`, answered with `error()`."""

    topic: str
    spoken: tuple[str, ...]

    @property
    def is_error(self) -> bool:
        """True if it seems to be an error itself, in a version not spoken."""
        return self.topic.startswith("bus.error")

    def error(self) -> BusError:
        """The answer to whoever sent it."""
        return BusError(topic=self.topic, spoken=self.spoken)


_KINDS: tuple[type[Message], ...] = (
    InferenceRequest,
    InferenceAssigned,
    Generate,
    NodeToken,
    Heartbeat,
    BusError,
)
SPOKEN = tuple(kind.TOPIC for kind in _KINDS)
"""Every topic with its version."""
_encoder = msgspec.msgpack.Encoder()
_decoders: dict[bytes, msgspec.msgpack.Decoder[Message]] = {
    kind.TOPIC.encode(): msgspec.msgpack.Decoder(kind) for kind in _KINDS
}


def encode(message: Message) -> list[bytes]:
    """The two frames of `message`."""
    return [message.TOPIC.encode(), _encoder.encode(message)]


def decode(frames: list[bytes]) -> Message | NotSpoken:
    """The message in the frames `topic, body`."""
    topic = frames[0] if frames else b""
    decoder = _decoders.get(topic)
    if decoder is not None and len(frames) == 2:
        try:
            return decoder.decode(frames[1])
        except msgspec.MsgspecError:
            pass  # a body that does not fit its topic: answered like a version not spoken
    return _not_spoken(topic)


def _not_spoken(topic: bytes) -> NotSpoken:
    text = topic[:100].decode("ascii", "replace")
    name = text.rpartition(".v")[0] + ".v"
    same = tuple(spoken for spoken in SPOKEN if spoken.startswith(name))
    return NotSpoken(text, same or SPOKEN)


_Socket = TypeVar("_Socket", bound=zmq.Socket[Any])


def configure(socket: _Socket) -> _Socket:
    """Options of every socket: nothing lingers, a silent peer is noticed, a message has a cap."""
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES)
    # nothing waits for a peer that is not there: it would be answered long after its caller left
    socket.setsockopt(zmq.IMMEDIATE, 1)
    socket.setsockopt(zmq.HEARTBEAT_IVL, _ZMTP_HEARTBEAT_MS)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, _ZMTP_TIMEOUT_MS)
    socket.setsockopt(zmq.RECONNECT_IVL, _RECONNECT_MS)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, _RECONNECT_MAX_MS)
    return socket


class Router:
    """The socket of a process that others connect to; answers what it does not speak by itself."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], address: str) -> None:
        """Bind to `address`; a port `*` is chosen by the OS. Unavailable if it is taken."""
        self.socket = configure(context.socket(zmq.ROUTER))
        try:
            self.socket.bind(address)
        except zmq.ZMQError as error:
            self.socket.close()
            raise Unavailable(
                f"cannot listen on {address} ({error.strerror}): stop what listens there"
            ) from None
        self.address = self.socket.getsockopt_string(zmq.LAST_ENDPOINT)
        """Where it is really bound."""

    def receive(self) -> tuple[bytes, Message] | None:
        """The next message and its sender; None if there is none now."""
        while True:
            try:
                sender, *frames = self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return None
            message = decode(frames)
            if not isinstance(message, NotSpoken):
                return sender, message
            if not message.is_error:  # two peers that know no common error would talk for ever
                self.send(sender, message.error())

    def send(self, to: bytes, message: Message) -> None:
        """Send to a peer; dropped if it is gone, as it will ask again."""
        try:
            self.socket.send_multipart([to, *encode(message)], zmq.NOBLOCK)
        except zmq.Again:
            return

    def close(self) -> None:
        """Unbind."""
        self.socket.close()
