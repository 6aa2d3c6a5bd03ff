"""The HTTP side: routes, API keys, body sizes, errors, metrics.

In:   HTTP requests
Out:  responses shaped as the OpenAI API shapes them
Refuses: callers without a key (401), bodies over 1 MiB (413)
Never: logs a body, a header or a key
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from afterbay.platform.apikeys import ApiKeys
from afterbay.platform.gateway.answer import Json
from afterbay.platform.gateway.chat import Chat
from afterbay.platform.gateway.errors import ApiError
from afterbay.platform.gateway.feedback import Feedback
from afterbay.platform.gateway.journal import Journal
from afterbay.platform.gateway.wire import MAX_BODY, read_chat, read_feedback
from afterbay.streams.metrics import Metrics

SESSION_HEADER = "x-afterbay-session"
_MAX_HEADER = 256
_encode = msgspec.json.Encoder().encode

Endpoint = Callable[[Request], Awaitable[Response]]


class Api:
    """The endpoints over their services."""

    def __init__(
        self,
        *,
        chat: Chat,
        feedback: Feedback,
        journal: Journal,
        keys: ApiKeys,
        policy: str,
        metrics: Metrics,
    ) -> None:
        self._chat = chat
        self._feedback = feedback
        self._journal = journal
        self._keys = keys
        self._policy = policy
        self._metrics = metrics
        self._requests = metrics.counter("requests", "Requests, by route.", ("route", "status"))
        self._seconds = metrics.seconds("request", "Time to the end of a response.", ("route",))
        self._fill = metrics.gauge("ring_fill", "Share of the L1 ring in use.")

    def app(self, **options: Any) -> Starlette:
        """The ASGI application; `options` are Starlette's."""
        routes = [
            Route("/v1/chat/completions", self._counted("chat", self.chat), methods=["POST"]),
            Route("/v1/feedback", self._counted("feedback", self.feedback), methods=["POST"]),
            Route("/v1/models", self._counted("models", self.models), methods=["GET"]),
            Route("/health", self.health, methods=["GET"]),
            Route("/metrics", self.metrics, methods=["GET"]),
        ]
        return Starlette(routes=routes, **options)

    async def chat(self, request: Request) -> Response:
        """`POST /v1/chat/completions`."""
        self._caller(request)
        body = await read_body(request)
        asked = read_chat(body)
        admitted = self._chat.admit(asked, _header(request, SESSION_HEADER))
        headers = {SESSION_HEADER: _plain(admitted.session)}
        if not asked.stream:
            answer = await self._chat.answer(admitted, len(body))
            return Response(_encode(answer), 200, headers, "application/json")
        chunks = self._chat.stream(admitted, len(body))
        # the first chunk now: an error before it is a status, one after it a chunk
        first = await anext(chunks)
        events = _events(first, chunks)
        return StreamingResponse(events, 200, headers, "text/event-stream")

    async def feedback(self, request: Request) -> Response:
        """`POST /v1/feedback`."""
        caller = self._caller(request)
        asked = read_feedback(await read_body(request))
        feedback_id = self._feedback.take(caller, asked, _header(request, "idempotency-key"))
        return JSONResponse({"feedback_id": feedback_id}, 202)

    async def models(self, request: Request) -> Response:
        """`GET /v1/models`."""
        self._caller(request)
        model = {"id": self._policy, "object": "model", "created": 0, "owned_by": "afterbay"}
        return JSONResponse({"object": "list", "data": [model]})

    async def health(self, _request: Request) -> Response:
        """`GET /health`: the gateway itself, without the nodes behind it."""
        return JSONResponse(
            {"agent": "gateway", "state": "running", "ring_fill": round(self._journal.fill, 4)}
        )

    async def metrics(self, _request: Request) -> Response:
        """`GET /metrics`."""
        self._fill.set(self._journal.fill)
        return Response(self._metrics.text(), media_type="text/plain; version=0.0.4")

    def _caller(self, request: Request) -> str:
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        caller = self._keys.caller_of(key.strip()) if scheme.lower() == "bearer" else None
        if caller is None:
            message = "no valid API key; make one with `afterbay apikey create NAME`"
            raise ApiError(401, "invalid_api_key", message)
        return caller

    def _counted(self, route: str, endpoint: Endpoint) -> Endpoint:
        async def counted(request: Request) -> Response:
            start = time.perf_counter()
            try:
                response = await endpoint(request)
            except ApiError as error:
                response = error.response()
            self._requests.labels(route, str(response.status_code)).inc()
            self._seconds.labels(route).observe(time.perf_counter() - start)
            return response

        return counted


async def read_body(request: Request) -> bytes:
    """The body; ApiError 413 as soon as it is known to be too large."""
    told = request.headers.get("content-length", "")
    if told.isdigit() and int(told) > MAX_BODY:
        raise _too_large()
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > MAX_BODY:
            raise _too_large()
        parts.append(part)
    return b"".join(parts)


def _too_large() -> ApiError:
    return ApiError(413, "body_too_large", f"the body is larger than {MAX_BODY} bytes; send less")


def _header(request: Request, name: str) -> str | None:
    text = request.headers.get(name)
    if text is not None and len(text) > _MAX_HEADER:
        message = f"header {name} is longer than {_MAX_HEADER} characters"
        raise ApiError(400, "header_too_long", message)
    return text or None


def _plain(text: str) -> str:
    """What a response header can carry of a session id; who sent another keeps it anyway."""
    return text if text.isascii() and text.isprintable() and len(text) <= _MAX_HEADER else ""


async def _events(first: Json, rest: AsyncIterator[Json]) -> AsyncIterator[bytes]:
    """Server-sent events, as the OpenAI API streams them."""
    yield _event(first)
    try:
        async for chunk in rest:
            yield _event(chunk)
    except ApiError as error:
        yield _event(error.body)
    yield b"data: [DONE]\n\n"


def _event(chunk: Json) -> bytes:
    return b"data: " + _encode(chunk) + b"\n\n"
