"""Play one schedule on its own log and home, let everything come to rest, and judge it.

In:   a plan, the broker's address, a home to copy
Out:  `Played`: what was done, which faults were hit, the verdict
Never: takes an end for a good one but SIGTERM's, the fence's 3 and one that it caused itself
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from confluent_kafka.admin import AdminClient

from afterbay.lakehouse.lake import Lake as OurLake
from afterbay.lakehouse.prove import prove
from afterbay.schemas.topics import TOPICS
from afterbay.streams.agent import EXIT_FAILED, EXIT_FENCED, EXIT_OK
from afterbay.streams.kafka import KafkaAddress
from tests.faults import oracle
from tests.faults.actors import Actor
from tests.faults.plan import Plan, Step
from tests.faults.sent import Sent
from tests.support.events import Sender
from tests.support.kafka import fresh_log

REST_S = 60.0
"""Time that agents have to come to rest once nobody disturbs them."""
_SIGNALS = {
    "kill": signal.SIGKILL,
    "term": signal.SIGTERM,
    "stop": signal.SIGSTOP,
    "cont": signal.SIGCONT,
}


@dataclass
class Played:
    """One schedule that was played. Made by `play`, written down by the runner."""

    plan: Plan
    actions: Counter[str] = field(default_factory=Counter)
    hits: Counter[str] = field(default_factory=Counter)
    """Faults that happened: `crash sink ledger.before_commit`."""
    verdict: oracle.Verdict = field(default_factory=oracle.Verdict)
    events: int = 0
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """True if nothing is lost, doubled or otherwise wrong."""
        return not (self.verdict.lost or self.verdict.doubled or self.verdict.wrong)


class Player:
    """One schedule's agents, log and home."""

    def __init__(self, plan: Plan, log: KafkaAddress, home: Path) -> None:
        self._plan = plan
        self._log = log
        self._home = home
        self._run = home / "run"
        self._run.mkdir(exist_ok=True)
        self._actors: dict[str, Actor] = {}
        self._ended: list[Actor] = []
        self._stopped: set[str] = set()
        self._lake = oracle.Lake(home / "lake")
        self._sent = Sent(Sender(log), Random(plan.seed))  # noqa: S311  # repeatable chance
        self.played = Played(plan)

    def run(self) -> Played:
        """Every step, then the rest and the verdict."""
        try:
            for step in self._plan.steps:
                time.sleep(step.pause_s)  # part of the schedule, nothing waits for it
                self._do(step)
            self._settle()
        except Exception as error:  # one schedule's surprise is its own failure, not the run's
            self.played.verdict.wrong.append(f"could not be judged: {error!r}")
        finally:
            for actor in self._actors.values():
                actor.end()
        return self.played

    def _do(self, step: Step) -> None:
        self._collect()
        actor = self._actors.get(step.slot)
        if step.kind == "send":
            self._sent.burst(step.events)
        elif step.kind == "start" and actor is None:
            self._start(step.slot, step.fault)
        elif step.kind in _SIGNALS and actor is not None:
            actor.signal(_SIGNALS[step.kind])
            if step.kind == "term" and actor.stopped:
                actor.signal(signal.SIGCONT)
        else:
            return
        self.played.actions[step.kind] += 1

    def _start(self, slot: str, fault: str = "") -> None:
        environ = {
            **os.environ,
            "AFTERBAY_HOME": str(self._home),
            "AFTERBAY_BOOTSTRAP": self._log.bootstrap,
            "AFTERBAY_TOPIC_PREFIX": self._log.prefix,
            "AFTERBAY_FLUSH_S": "0.1",
            "AFTERBAY_GAP_S": "0.5",
            "AFTERBAY_POLL_S": "0.05",
            "AFTERBAY_SESSION_S": "1.5",
            "AFTERBAY_REWARD_WAIT_S": f"{self._plan.reward_wait_s:g}",
        }
        self._actors[slot] = Actor.start(slot, fault, environ, self._run)

    def _collect(self) -> None:
        """Take note of agents that ended."""
        for slot, actor in list(self._actors.items()):
            if actor.exit_code is not None:
                self._ended.append(self._actors.pop(slot))

    def _settle(self) -> None:
        self._sent.rest()
        defaults = self._plan.reward_wait_s < 60
        self._until("tables and rewards are complete", lambda: self._complete(defaults))
        self._stop("rewarder")
        logged = oracle.read_log(self._log.bootstrap, self._log.prefix)
        self._until("rewards are experience", lambda: oracle.derived_settled(self._lake, logged))
        self._stop("sink", "bucketer")
        self._judge(logged, defaults)

    def _thaw(self) -> None:
        """Let everybody go on who was stopped, or froze at a fault point."""
        for actor in self._actors.values():
            actor.signal(signal.SIGCONT)

    def _complete(self, defaults: bool) -> bool:
        sent = self._sent
        return (
            sent.inferences.keys() <= set(self._lake.values("inference", "event_id"))
            and sent.feedback.keys() <= set(self._lake.values("feedback", "event_id"))
            and oracle.rewards_settled(self._lake, sent.inferences, defaults)
        )

    def _until(self, what: str, holds: Callable[[], bool]) -> None:
        """Wait for it with one agent of each kind alive."""
        deadline = time.monotonic() + REST_S
        kinds = {"sink", "rewarder", "bucketer"} - self._stopped
        while not holds():
            if time.monotonic() > deadline:
                self.played.verdict.wrong.append(f"not at rest within {REST_S:g} s: {what}")
                return
            self._collect()
            self._thaw()
            for kind in kinds - {actor.kind for actor in self._actors.values()}:
                self._start(f"{kind}-1")
            time.sleep(0.1)

    def _stop(self, *kinds: str) -> None:
        """End agents as the supervisor does."""
        self._stopped |= set(kinds)
        ending = [actor for actor in self._actors.values() if actor.kind in kinds]
        for actor in ending:
            actor.signal(signal.SIGTERM)
        deadline = time.monotonic() + REST_S
        for actor in ending:
            while actor.wait(0.2) is None and time.monotonic() < deadline:
                self._thaw()
            if actor.exit_code is None:
                self.played.verdict.wrong.append(f"{actor.slot} did not end on SIGTERM")
        self._collect()

    def _judge(self, logged: oracle.Logged, defaults: bool) -> None:
        sent: dict[str, Iterable[str]] = {
            oracle.INFERENCE: self._sent.inferences,
            oracle.FEEDBACK: self._sent.feedback,
        }
        found = oracle.judge(self._lake, logged, sent, defaults=defaults)
        verdict = self.played.verdict
        verdict.lost += found.lost
        verdict.doubled += found.doubled
        verdict.wrong += found.wrong
        proof = prove(OurLake(str(self._home / "lake")))
        verdict.wrong += [f"prove: {difference}" for difference in proof.differences]
        for actor in self._ended:
            self._judge_end(actor)
        self.played.events = sum(len(events) for events in logged.events.values())

    def _judge_end(self, actor: Actor) -> None:
        how, _, at = actor.fault.partition(":")
        if actor.was_hit:
            self.played.hits[f"{how} {actor.kind} {at.partition(':')[0]}"] += 1
        code = actor.exit_code
        died = code == -signal.SIGKILL and (actor.asked or (how == "crash" and actor.was_hit))
        fenced = code == EXIT_FENCED and actor.kind != "sink"
        # an exception that meets it while it drains: it says that it did not finish
        unfinished = code == EXIT_FAILED and how == "fail" and actor.was_hit
        ended = actor.asked and (code in (EXIT_OK, -signal.SIGTERM) or unfinished)
        self.played.verdict.check(
            died or fenced or ended,
            f"{actor.slot} ended with {code}: {actor.hit.with_suffix('.log')}",
        )


def play(plan: Plan, bootstrap: str, template: Path, folder: Path) -> Played:
    """One schedule in `folder`, which is gone afterwards if all was well."""
    started = time.monotonic()
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(template, folder)
    log = fresh_log(bootstrap)
    played = Player(plan, log, folder).run()
    _forget(log)
    if played.ok:
        shutil.rmtree(folder)
    played.seconds = time.monotonic() - started
    return played


def _forget(log: KafkaAddress) -> None:
    """Take the log's topics off the broker, so that a thousand schedules fit on it."""
    admin = AdminClient({"bootstrap.servers": log.bootstrap})
    for future in admin.delete_topics([log.topic(name) for name in TOPICS]).values():
        future.result()
