"""From an answer to the opinions about it, and from those to the gateway.

In:   `Answer`s as the player gets them
Out:  opinions at the sender, at their times; what was heard, by kind of judge
"""

from __future__ import annotations

import time
from collections import defaultdict

from afterbay.platform.demo.feedback import FeedbackSender
from afterbay.platform.demo.opinions import Judges, Opinion, Shuffler
from afterbay.platform.demo.personal import Planted
from afterbay.platform.demo.player import Answer
from afterbay.platform.demo.recording import Heard
from afterbay.platform.demo.summary import percentile


class Hearing:
    """Asks every judge about every answer."""

    def __init__(
        self, judges: Judges, sender: FeedbackSender, shuffler: Shuffler | None = None
    ) -> None:
        self._judges = judges
        self._sender = sender
        self._shuffler = shuffler
        self._given: dict[str, list[Opinion]] = defaultdict(list)
        self.planted: list[Planted] = []
        """Personal values in the comments."""
        self.answered_at: list[float] = []
        """When each answer came, seconds since the epoch."""

    def answer(self, answer: Answer) -> None:
        """Hear all judges about one answer."""
        self.answered_at.append(time.time())
        planned = answer.planned
        for opinion in self._judges.opinions(planned.message, planned.play, answer.tool):
            given = opinion if self._shuffler is None else self._shuffler.swap(opinion)
            self._given[given.source].append(given)
            self.planted += given.planted
            self._sender.put(answer.inference_id, given)

    def heard(self) -> dict[str, Heard]:
        """What was said, by kind of judge."""
        return {source: _heard(given) for source, given in sorted(self._given.items())}


def _heard(given: list[Opinion]) -> Heard:
    scores = [opinion.score for opinion in given if opinion.score is not None]
    return Heard(
        sent=len(given),
        mean=sum(scores) / len(scores) if scores else 0.0,
        delay_p50_s=percentile((opinion.delay_s for opinion in given), 0.5) or 0.0,
    )
