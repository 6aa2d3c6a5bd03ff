"""The scheduler: answers every gateway which arm and which node serve a session.

In:   `inference.request.v2` and `heartbeat.v2` on one ZeroMQ ROUTER socket; the topics
      `policy.snapshot.v2` and `policy.loaded.v2` from their beginning
Out:  `inference.assigned.v2`
Refuses: what it does not speak, naming what it does
Never: sees a conversation, keeps anything on disk; after a restart it is whole again as soon as it
      has read the topics and every node has sent one heartbeat
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Mapping

import zmq

from afterbay.platform.assigner import Assigner
from afterbay.platform.bus import Heartbeat, InferenceRequest, Message, Router
from afterbay.platform.policy_log import PolicyLog
from afterbay.platform.settings import Settings
from afterbay.schemas.clock import Clock, SystemClock
from afterbay.schemas.errors import AfterbayError, BadSettings, Retryable
from afterbay.schemas.events import Event, PolicyLoaded, PolicySnapshot
from afterbay.streams import agent
from afterbay.streams.follow import follow_topic
from afterbay.streams.kafka import KafkaAddress
from afterbay.streams.metrics import Metrics

log = logging.getLogger("afterbay.scheduler")

_POLL_MS = 50
"""Longest wait for a message: how late a policy event is noticed on an idle bus."""
_BURST = 256
"""Messages answered before policy events are looked at again."""


class PolicyFeed:
    """Follows the policy topics in a thread, so that a broker that is away stops no answer."""

    def __init__(self, follow: Callable[[], PolicyLog]) -> None:
        self._follow = follow
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="policy-feed", daemon=True)
        self._caught_up = threading.Event()
        self._broken: AfterbayError | None = None

    def start(self) -> None:
        """Begin to follow."""
        self._thread.start()

    def take(self) -> tuple[list[Event], bool]:
        """Events that came since the last call, and whether the end was reached before them.

        Raises what ended the thread, if something did.
        """
        if self._broken is not None:
            raise self._broken
        caught_up = self._caught_up.is_set()  # first: what came before it is in the queue already
        found: list[Event] = []
        while not self._events.empty():
            found.append(self._events.get())
        return found, caught_up

    def close(self) -> None:
        """Stop following."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._pump(self._follow())
            except Retryable as error:
                log.warning("policy topics: %s", error)
                self._stop.wait(0.5)
            except AfterbayError as error:
                self._broken = error
                return

    def _pump(self, source: PolicyLog) -> None:
        try:
            while not self._stop.is_set():
                for followed in source.poll(0.1):
                    self._events.put(followed.event)
                if source.caught_up:
                    self._caught_up.set()
        finally:
            source.close()


class Scheduler:
    """The agent: one thread, one socket."""

    name = "scheduler"

    def __init__(
        self, address: str, feed: PolicyFeed, clock: Clock, metrics: Metrics | None = None
    ) -> None:
        self._address = address
        self._feed = feed
        self._clock = clock
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._router: Router | None = None
        self.assigner = Assigner()
        """What it knows."""
        metrics = metrics or Metrics(self.name)
        self._assigned = metrics.counter("assigned", "Requests answered, by arm.", ("arm",))
        self._nobody = metrics.counter("unassigned", "Requests nobody can answer.", ("why",))
        self._failed = metrics.counter("failed_loads", "Snapshots a node could not load.", ("why",))
        self._nodes = metrics.gauge("nodes", "Nodes that live.")

    @property
    def address(self) -> str:
        """Where it is bound; empty before `open`."""
        return self._router.address if self._router else ""

    def open(self) -> None:
        """Bind and begin to follow."""
        self._router = Router(self._context, self._address)
        self._feed.start()

    def step(self) -> bool:
        """Answer what came, after taking in what the log says."""
        router = self._bound()
        router.socket.poll(_POLL_MS, zmq.POLLIN)
        self._follow()
        for _ in range(_BURST):
            received = router.receive()
            if received is None:
                self._bury()  # only now: a heartbeat may have waited here while we did not run
                break
            answer = self._answer(received[1])
            if answer is not None:
                router.send(received[0], answer)
        return True

    def drain(self) -> None:
        """Nothing to finish: a request without an answer is asked again."""

    def close(self) -> None:
        """Unbind; safe twice."""
        self._feed.close()
        if self._router is not None:
            self._router.close()
            self._router = None
        self._context.term()

    def _answer(self, message: Message) -> Message | None:
        if isinstance(message, Heartbeat):
            self.assigner.heard(message, self._clock.monotonic())
            return None
        if not isinstance(message, InferenceRequest):
            return None
        assigned = self.assigner.assign(message)
        if assigned.error is None:
            self._assigned.labels(assigned.arm).inc()
        else:
            self._nobody.labels(assigned.error).inc()
        return assigned

    def _follow(self) -> None:
        events, caught_up = self._feed.take()
        for event in events:
            if isinstance(event, PolicySnapshot):
                self.assigner.advance(event)
                log.info("%s: snapshot %s %s", event.policy, event.snapshot_id, event.action)
            elif isinstance(event, PolicyLoaded) and event.error:
                self._failed.labels(event.error).inc()
                log.warning("%s cannot load %s: %s", event.node_id, event.snapshot_id, event.error)
        self.assigner.ready = self.assigner.ready or caught_up

    def _bury(self) -> None:
        for node in self.assigner.bury(self._clock.monotonic()):
            log.warning("%s fell silent: no more requests for it", node)
        self._nodes.set(len(self.assigner.nodes))

    def _bound(self) -> Router:
        if self._router is None:
            raise BadSettings("scheduler: step before open")
        return self._router


def main(environ: Mapping[str, str]) -> int:
    """Run the scheduler of an installation until it is told to stop; its exit code."""
    agent.log_to_stderr()
    settings = Settings.from_env(environ)
    if not settings.scheduler:
        raise BadSettings(
            "AFTERBAY_SCHEDULER is not set: give the address to bind, tcp://host:port"
        )
    kafka = KafkaAddress(settings.bootstrap, settings.prefix)
    feed = PolicyFeed(lambda: follow_topic(kafka, [PolicySnapshot.TOPIC, PolicyLoaded.TOPIC]))
    metrics = Metrics("scheduler")
    scheduler = Scheduler(settings.scheduler, feed, SystemClock(), metrics)
    return agent.run(scheduler, agent.AgentSettings(metrics_port=settings.metrics_port), metrics)
