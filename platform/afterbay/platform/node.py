"""An inference node: answers with the snapshots that events name, and no others.

In:   `node.generate.v2` on a ZeroMQ ROUTER socket; `policy.snapshot.v2`
Out:  `node.token.v2` to whoever asked; `heartbeat.v2` to the scheduler; `policy.loaded.v2`
Refuses: requests for weights it does not hold, as a `NodeToken`
Never: decides which arm serves; writes a conversation anywhere
"""

from __future__ import annotations

from collections.abc import Mapping

import zmq

from afterbay.platform.answering import Answers
from afterbay.platform.bus import HEARTBEAT_S, Generate, Heartbeat, Router, configure, encode
from afterbay.platform.holding import Holder, SnapshotLoader, Telling
from afterbay.platform.settings import Settings
from afterbay.schemas.clock import Clock, SystemClock
from afterbay.schemas.errors import BadSettings
from afterbay.schemas.events import PolicySnapshot
from afterbay.streams import agent
from afterbay.streams.follow import follow_topic
from afterbay.streams.kafka import KafkaAddress
from afterbay.streams.metrics import Metrics
from afterbay.streams.outbox import Outbox
from afterbay.streams.signing import Ed25519Verifier
from afterbay.trainers.runtime import TorchSettings, set_up_torch

_IDLE_MS = 20
"""Longest wait for a request; a heartbeat is never later than that."""
_LEAVE_S = 5.0
"""How long answers under way may take once the node is told to stop."""


class Node:
    """The agent: one thread answers, one loads."""

    name = "node"

    def __init__(
        self,
        *,
        node_id: str,
        address: str,
        scheduler: str,
        holder: Holder,
        clock: Clock,
        metrics: Metrics | None = None,
    ) -> None:
        self._node_id = node_id
        self._asked_address = address
        self._scheduler = scheduler
        self._holder = holder
        self._clock = clock
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._router: Router | None = None
        self._beats: zmq.Socket[bytes] | None = None
        self._beat_at = 0.0
        self._answers = Answers(node_id, holder.loaded, clock)
        metrics = metrics or Metrics(self.name)
        self._sent = metrics.counter("answers", "Answers ended, by how.", ("how",))
        self._busy = metrics.gauge("busy", "Requests being answered or waiting.")
        self._held = metrics.gauge("snapshots", "Snapshots loaded.")

    def open(self) -> None:
        """Bind, find the scheduler, begin to load."""
        self._router = Router(self._context, self._asked_address)
        self._beats = configure(self._context.socket(zmq.DEALER))
        self._beats.connect(self._scheduler)
        self._holder.start()

    def step(self) -> bool:
        """Take what came, give every answer one token, and say that we live."""
        if self._holder.broken is not None:
            raise self._holder.broken
        router = self._bound()
        router.socket.poll(0 if self._answers.busy else _IDLE_MS, zmq.POLLIN)
        self._receive(router)
        self._answer(router)
        self._beat()
        return True

    def drain(self) -> None:
        """Take nothing more, and end what is under way."""
        if self._router is None:
            return
        self._beat(leaving=True)
        deadline = self._clock.monotonic() + _LEAVE_S
        while self._answers.busy and self._clock.monotonic() < deadline:
            self._answer(self._router)

    def close(self) -> None:
        """Unbind; safe twice."""
        self._holder.close()
        if self._router is not None and self._beats is not None:
            # what was sent last is still on its way: the answer that ended while we drained
            self._router.socket.close(linger=500)
            self._beats.close(linger=500)
            self._router = self._beats = None
        self._context.term()

    def _receive(self, router: Router) -> None:
        while (received := router.receive()) is not None:
            sender, message = received
            if isinstance(message, Generate):
                refused = self._answers.take(sender, message)
                if refused is not None:
                    self._sent.labels(refused.refused or "").inc()
                    router.send(sender, refused)

    def _answer(self, router: Router) -> None:
        for sender, token in self._answers.step():
            router.send(sender, token)
            if token.ended is not None or token.refused is not None:
                self._sent.labels(token.refused or "answered").inc()

    def _beat(self, *, leaving: bool = False) -> None:
        now = self._clock.monotonic()
        if self._beats is None or (now < self._beat_at and not leaving):
            return
        self._beat_at = now + HEARTBEAT_S
        self._busy.set(self._answers.busy)
        self._held.set(len(self._holder.holdings()))
        beat = Heartbeat(
            node_id=self._node_id,
            address=self._bound().address,
            holds=self._holder.holdings(),
            busy=self._answers.busy,
            leaving=leaving,
        )
        try:
            self._beats.send_multipart(encode(beat), zmq.NOBLOCK)
        except zmq.Again:
            return  # no scheduler now: the next heartbeat tells the same

    def _bound(self) -> Router:
        if self._router is None:
            raise BadSettings("node: step before open")
        return self._router


def main(environ: Mapping[str, str]) -> int:
    """Run one node of an installation until it is told to stop; its exit code."""
    agent.log_to_stderr()
    set_up_torch(TorchSettings.from_env(environ))
    settings = Settings.from_env(environ)
    address = settings.nodes.get(settings.node_id)
    if not address or not settings.scheduler:
        raise BadSettings(
            "a node needs AFTERBAY_NODE_ID, its address in AFTERBAY_NODES, and "
            "AFTERBAY_SCHEDULER; `afterbay up` sets them"
        )
    clock, kafka = SystemClock(), KafkaAddress(settings.bootstrap, settings.prefix)
    holder = Holder(
        node_id=settings.node_id,
        policy=settings.policy,
        follow=lambda: follow_topic(kafka, [PolicySnapshot.TOPIC]),
        loader=SnapshotLoader(settings.home.path, Ed25519Verifier.load(settings.home.keys)),
        telling=Telling(Outbox(f"node/{settings.node_id}", kafka, clock)),
        clock=clock,
    )
    metrics = Metrics("node")
    node = Node(
        node_id=settings.node_id,
        address=address,
        scheduler=settings.scheduler,
        holder=holder,
        clock=clock,
        metrics=metrics,
    )
    return agent.run(node, agent.AgentSettings(metrics_port=settings.metrics_port), metrics)
