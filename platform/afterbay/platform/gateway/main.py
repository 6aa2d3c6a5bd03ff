"""Start the gateway: compose its services and serve until told to stop.

In:   the environment
Out:  an exit code
Refuses: to start beside another gateway of the same home: the ring has one writer (Fenced)
"""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import uvicorn
import uvloop
from starlette.applications import Starlette

from afterbay.platform.apikeys import ApiKeys
from afterbay.platform.gateway.app import Api
from afterbay.platform.gateway.chat import Chat
from afterbay.platform.gateway.dispatch import Dispatcher
from afterbay.platform.gateway.feedback import Feedback
from afterbay.platform.gateway.journal import Journal
from afterbay.platform.ring import CAPACITY, L1, Ring
from afterbay.platform.settings import Settings
from afterbay.schemas.clock import SystemClock
from afterbay.schemas.errors import BadSettings
from afterbay.streams.agent import log_to_stderr
from afterbay.streams.keys.pseudonyms import Pseudonyms
from afterbay.streams.metrics import Metrics

HOST = "127.0.0.1"
_FINISH_S = 5.0
"""How long answers under way may take once the gateway is told to stop."""


def main(environ: Mapping[str, str]) -> int:
    """Run the gateway of an installation until SIGTERM or SIGINT; its exit code."""
    log_to_stderr()
    settings = Settings.from_env(environ)
    if not settings.scheduler:
        raise BadSettings("AFTERBAY_SCHEDULER is not set: give the scheduler's ZeroMQ address")
    for number in (signal.SIGTERM, signal.SIGINT):
        # uvicorn stops in order, then raises the signal again for the handlers before its own
        signal.signal(number, lambda *_: None)
    with Ring.open(settings.home.ring(L1), CAPACITY, "writer") as ring:
        uvloop.run(_serve(settings, ring))
    return 0


async def _serve(settings: Settings, ring: Ring) -> None:
    config = uvicorn.Config(
        _app(settings, ring),
        host=HOST,
        port=settings.gateway_port,
        access_log=False,
        log_level="warning",
        timeout_graceful_shutdown=int(_FINISH_S),
        server_header=False,
    )
    await uvicorn.Server(config).serve()


def _app(settings: Settings, ring: Ring) -> Starlette:
    clock, journal = SystemClock(), Journal(ring)
    pseudonyms = Pseudonyms.load(settings.home.keys)
    dispatcher = Dispatcher(settings.scheduler)
    chat = Chat(
        dispatcher=dispatcher,
        journal=journal,
        pseudonyms=pseudonyms,
        clock=clock,
        policy=settings.policy,
    )
    api = Api(
        chat=chat,
        feedback=Feedback(journal, pseudonyms, clock),
        journal=journal,
        keys=ApiKeys(settings.home.api_keys),
        policy=settings.policy,
        metrics=Metrics("gateway"),
    )

    @asynccontextmanager
    async def life(_app: Starlette) -> AsyncIterator[None]:
        yield
        await chat.finish(_FINISH_S)
        await dispatcher.close()

    return api.app(lifespan=life)
