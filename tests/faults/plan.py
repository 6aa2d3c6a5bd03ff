"""What one random schedule does to the agents, drawn from its seed alone.

In:   a seed and the schedule's number
Out:  `Plan`: events to send, agents to start, kill, stop and let go on, in order
Never: looks at what happens; a step that makes no sense any more is passed over when played
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

SINKS = ("sink-1", "sink-2")
SLOTS = (*SINKS, "rewarder-1", "rewarder-2", "bucketer-1", "bucketer-2")
"""Places for agents; two of a kind may live at once, and fence or balance each other."""
POINTS = {
    "sink": ("ledger.before_commit", "ledger.after_commit"),
    "rewarder": ("outbox.produced", "outbox.committed"),
    "bucketer": ("ledger.before_commit", "ledger.after_commit"),
}
"""Fault points that each agent passes."""
HOW = ("crash", "fail", "freeze")
FAULTS = tuple((how, agent, at) for how in HOW for agent, points in POINTS.items() for at in points)
"""Every fault there is; each schedule has one of them for certain, in turn."""
_SHORT_WAIT_S, _LONG_WAIT_S = 0.7, 86_400.0


@dataclass(frozen=True, slots=True)
class Step:
    """One action. Made by `draw`, carried out by `Player`."""

    kind: str
    """send, start, kill, term, stop or cont."""
    pause_s: float
    """Seconds to let pass before it."""
    slot: str = ""
    fault: str = ""
    """For start: `crash:<point>:<n>`, `fail:` or `freeze:` likewise, or nothing."""
    events: int = 0
    """For send: inferences to send."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole schedule. Made by `draw`."""

    seed: str
    """Of everything random in it, the events' values too."""
    number: int
    reward_wait_s: float
    steps: tuple[Step, ...]


@dataclass(slots=True)
class _Stage:
    """What the plan believes of the agents while it is drawn."""

    random: Random
    featured: str
    up: set[str] = field(default_factory=set)
    stopped: set[str] = field(default_factory=set)

    def next(self) -> Step:
        """One more action that makes sense."""
        choices = [("send", 5, [""]), ("start", 5, [s for s in SLOTS if s not in self.up])]
        movable = sorted(self.up - {self.featured})
        choices += [("kill", 3, movable), ("term", 1, movable)]
        choices += [("stop", 2, sorted(set(movable) - self.stopped))]
        choices += [("cont", 4, sorted(self.stopped))]
        possible = [choice for choice in choices if choice[2]]
        weights = [weight for _, weight, _ in possible]
        kind, _, slots = self.random.choices(possible, weights)[0]
        return self.step(kind, self.random.choice(slots))

    def step(self, kind: str, slot: str = "", fault: str = "") -> Step:
        """The action, and what is believed after it."""
        pause = self.random.choice((0.0, 0.05, 0.1, 0.2, 0.4))
        if kind in ("kill", "term", "start"):
            self.stopped.discard(slot)
            (self.up.add if kind == "start" else self.up.discard)(slot)
        if kind == "stop":
            self.stopped.add(slot)
        if kind == "cont":
            self.stopped.discard(slot)
            pause = self.random.choice((0.1, 0.5, 2.0))  # the last is longer than a sink's session
        if kind == "start" and not fault and self.random.random() < 0.4:
            fault = self._fault(slot)
        events = self.random.choice((1, 3, 10, 40)) if kind == "send" else 0
        return Step(kind, pause, slot, fault, events)

    def _fault(self, slot: str) -> str:
        agent = slot.partition("-")[0]
        how = self.random.choice(("crash", "crash", "fail", "freeze"))
        return f"{how}:{self.random.choice(POINTS[agent])}:{self.random.randint(1, 4)}"


def draw(seed: int, number: int) -> Plan:
    """Schedule `number` of `seed`."""
    name = f"{seed}:{number}"
    random = Random(name)  # noqa: S311  # chance here has to be repeatable
    how, agent, point = FAULTS[number % len(FAULTS)]
    featured = f"{agent}-{random.randint(1, 2)}"
    stage = _Stage(random, featured)
    # the first commit of a rewarder or bucketer may be its last, so theirs is armed for that one
    visit = random.randint(1, 3) if agent == "sink" else 1
    steps = [stage.step("send"), stage.step("start", featured, f"{how}:{point}:{visit}")]
    others = [f"{name}-{random.randint(1, 2)}" for name in POINTS if name != agent]
    steps += [stage.step("start", slot) for slot in others]
    steps += [stage.next() for _ in range(random.randint(6, 12))]
    wait_s = random.choice((_SHORT_WAIT_S, _LONG_WAIT_S))
    return Plan(name, number, wait_s, tuple(steps))
