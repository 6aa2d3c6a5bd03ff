"""A tiny HTTP server that answers like the gateway, to see what the demo's player adds by itself.

It counts what it got and answers at once; nothing behind it is real.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_KEY = re.compile(rb"idempotency-key: *(\S+)", re.IGNORECASE)


@dataclass(slots=True)
class StubGateway:
    """What the stub was sent. Written by its thread, read by the test."""

    tool: str
    """Tool that every answer calls."""
    refuse_first: int = 0
    """Feedback posts answered with 503 before one is accepted."""
    refuse_with: int = 0
    """Status that every feedback post is answered with; 0: it is accepted."""
    address: str = ""
    chats: list[dict[str, object]] = field(default_factory=list)
    feedback: list[dict[str, object]] = field(default_factory=list)
    open: list[asyncio.Transport] = field(default_factory=list)
    keys: dict[str, str] = field(default_factory=dict)
    """Idempotency-Key -> feedback id given."""

    def answer(self, path: bytes, head: bytes, body: bytes) -> tuple[int, dict[str, object]]:
        """Status and body for one request."""
        if path.endswith(b"/models"):
            return 200, {"object": "list", "data": []}
        if path.endswith(b"/chat/completions"):
            self.chats.append(json.loads(body))
            return 200, self._completion()
        if self.refuse_first > 0:
            self.refuse_first -= 1
            return 503, {"error": {"message": "later"}}
        if self.refuse_with:
            return self.refuse_with, {"error": {"message": "no"}}
        self.feedback.append(json.loads(body))
        key = _KEY.search(head)
        name = key[1].decode() if key else str(uuid.uuid4())
        return 202, {"feedback_id": self.keys.setdefault(name, str(uuid.uuid4()))}

    def _completion(self) -> dict[str, object]:
        call = {"id": "c", "type": "function", "function": {"name": self.tool, "arguments": "{}"}}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        choice = {"index": 0, "finish_reason": "tool_calls", "message": message, "logprobs": None}
        return {
            "id": f"chatcmpl-{uuid.uuid4()}",
            "object": "chat.completion",
            "created": 1,
            "model": "m",
            "choices": [choice],
        }


class _Connection(asyncio.Protocol):
    def __init__(self, gateway: StubGateway) -> None:
        self._gateway = gateway
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._gateway.open.append(transport)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while b"\r\n\r\n" in self._buffer:
            head, _, rest = self._buffer.partition(b"\r\n\r\n")
            found = _LENGTH.search(head)
            length = int(found[1]) if found else 0
            if len(rest) < length:
                return
            self._buffer = rest[length:]
            status, body = self._gateway.answer(head.split(b" ", 2)[1], head, rest[:length])
            sent = json.dumps(body).encode()
            self._transport.write(
                b"HTTP/1.1 %d OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s"
                % (status, len(sent), sent)
            )


@contextmanager
def stub_gateway(tool: str, refuse_first: int = 0, refuse_with: int = 0) -> Iterator[StubGateway]:
    """A stub on a free port, served by a thread of its own until the block ends."""
    gateway = StubGateway(tool, refuse_first, refuse_with)
    loop = asyncio.new_event_loop()
    listening = loop.create_server(lambda: _Connection(gateway), "127.0.0.1", 0)
    server = loop.run_until_complete(listening)
    gateway.address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield gateway
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        for transport in gateway.open:
            transport.abort()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
