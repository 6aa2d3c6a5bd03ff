"""The gateway's side of the bus: ask the scheduler, send to a node, hear the tokens.

In:   requests, from the event loop
Out:  `InferenceAssigned`; the `NodeToken`s of one attempt, in order
Refuses: waiting for ever: silence becomes `Silent`, and the caller tries another node
Never: retries by itself
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import zmq
import zmq.asyncio

from afterbay.platform.bus import (
    BusError,
    Generate,
    InferenceAssigned,
    InferenceRequest,
    Message,
    NodeToken,
    NotSpoken,
    configure,
    decode,
    encode,
)

ASSIGN_S = 1.0
"""Longest wait for the scheduler, which answers in a fraction of a millisecond."""
TOKEN_S = 1.5
"""Longest silence of a node that is answering."""
_SEND_S = 0.5

Key = tuple[str, int]
"""Request id and attempt."""


class Silent(Exception):
    """A peer did not answer in time, or does not speak what it was told."""


class Peer:
    """One DEALER socket: messages out, and each that comes back to whoever waits for its key."""

    def __init__(self, context: zmq.asyncio.Context, address: str) -> None:
        self._socket = configure(context.socket(zmq.DEALER))
        self._socket.connect(address)
        self._waiting: dict[Key, asyncio.Queue[Message]] = {}
        self._reader = asyncio.get_running_loop().create_task(self._read())

    def expect(self, key: Key) -> asyncio.Queue[Message]:
        """Where messages for `key` will come; call `forget` when done."""
        return self._waiting.setdefault(key, asyncio.Queue())

    def forget(self, key: Key) -> None:
        """Nobody waits for `key` any more."""
        self._waiting.pop(key, None)

    async def send(self, message: Message) -> None:
        """Send; Silent if the peer is not there."""
        try:
            await asyncio.wait_for(self._socket.send_multipart(encode(message)), _SEND_S)
        except TimeoutError:
            raise Silent from None

    async def close(self) -> None:
        """Let go."""
        self._reader.cancel()
        self._socket.close()

    async def _read(self) -> None:
        while True:
            message = decode(await self._socket.recv_multipart())
            if isinstance(message, InferenceAssigned | NodeToken):
                queue = self._waiting.get((message.request_id, message.attempt))
                if queue is not None:
                    queue.put_nowait(message)
            elif isinstance(message, BusError):
                for queue in self._waiting.values():
                    queue.put_nowait(message)
            elif isinstance(message, NotSpoken) and not message.is_error:
                await self._socket.send_multipart(encode(message.error()))


class Dispatcher:
    """Every peer of one gateway. One event loop."""

    def __init__(self, scheduler: str) -> None:
        self._scheduler_address = scheduler
        self._context = zmq.asyncio.Context()
        self._peers: dict[str, Peer] = {}

    async def assign(self, ask: InferenceRequest) -> InferenceAssigned:
        """Arm and node for a request; Silent if the scheduler is away."""
        async with self._talking(
            self._scheduler_address, ask, (ask.request_id, ask.attempt)
        ) as heard:
            message = await _next(heard, ASSIGN_S)
        if not isinstance(message, InferenceAssigned):
            raise Silent
        return message

    async def generate(self, address: str, ask: Generate) -> AsyncIterator[NodeToken]:
        """What the node at `address` answers, until it has ended or refused; Silent if it stops."""
        async with self._talking(address, ask, (ask.request_id, ask.attempt)) as heard:
            while True:
                message = await _next(heard, TOKEN_S)
                if not isinstance(message, NodeToken):
                    raise Silent
                yield message
                if message.ended is not None or message.refused is not None:
                    return

    async def close(self) -> None:
        """Let go of every peer."""
        for peer in self._peers.values():
            await peer.close()
        self._context.destroy(linger=0)

    def _talking(self, address: str, ask: Message, key: Key) -> _Talk:
        peer = self._peers.get(address)
        if peer is None:
            peer = self._peers[address] = Peer(self._context, address)
        return _Talk(peer, ask, key)


class _Talk:
    """One message to a peer, and the queue of what it answers, for the length of a block."""

    def __init__(self, peer: Peer, ask: Message, key: Key) -> None:
        self._peer = peer
        self._ask = ask
        self._key = key

    async def __aenter__(self) -> asyncio.Queue[Message]:
        heard = self._peer.expect(self._key)
        try:
            await self._peer.send(self._ask)
        except BaseException:
            self._peer.forget(self._key)
            raise
        return heard

    async def __aexit__(self, *_: object) -> None:
        self._peer.forget(self._key)


async def _next(heard: asyncio.Queue[Message], timeout_s: float) -> Message:
    try:
        return await asyncio.wait_for(heard.get(), timeout_s)
    except TimeoutError:
        raise Silent from None
