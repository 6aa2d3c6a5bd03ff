"""The events that one schedule sends: answers, and opinions that come late, early, twice or never.

In:   a random source, a sender
Out:  what was sent, by id: the oracle's other side
Never: knows tables; what is here was acknowledged by the log
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from afterbay.schemas.events import Event, FeedbackReceived, InferenceCompleted
from tests.support.events import Sender, inference, opinion

_SOURCES = ("person", "model", "rule", "stranger")
_A_TRANSACTION = 25


@dataclass
class Sent:
    """Everything the log took."""

    sender: Sender
    random: Random
    inferences: dict[str, InferenceCompleted] = field(default_factory=dict)
    feedback: dict[str, FeedbackReceived] = field(default_factory=dict)
    _held: list[InferenceCompleted] = field(default_factory=list)
    """Answers whose opinions come first."""

    def burst(self, inferences: int) -> None:
        """Some answers, opinions about them and about older ones."""
        new = [inference(self.random.randrange(1_000)) for _ in range(inferences)]
        early = [one for one in new if self.random.random() < 0.2]
        on_time = [one for one in new if one not in early]
        known = [*new, *self._held, *self.inferences.values()]
        about = self.random.sample(known, min(len(known), inferences + 1))
        opinions = [self._opinion(one.event_id) for one in about]
        self._send([*on_time, *self._held, *opinions])
        self._held = early

    def rest(self) -> None:
        """What was held back, but for the answers that never come."""
        self._send([one for one in self._held if self.random.random() < 0.8])
        self._held = []

    def _opinion(self, inference_id: str) -> FeedbackReceived:
        score = None if self.random.random() < 0.1 else round(self.random.random(), 3)
        key = self.random.choice((None, None, None, "again"))
        source = self.random.choice(_SOURCES)
        return opinion(inference_id, score, source=source, idempotency_key=key)

    def _send(self, events: list[Event]) -> None:
        for start in range(0, len(events), _A_TRANSACTION):
            some = events[start : start + _A_TRANSACTION]
            self.sender.send(*some)
            for event in some:
                if isinstance(event, InferenceCompleted):
                    self.inferences[event.event_id] = event
                elif isinstance(event, FeedbackReceived):
                    self.feedback[event.event_id] = event
