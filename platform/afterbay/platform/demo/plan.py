"""When which message is played, and in whose session: fixed before the first one is sent.

In:   messages, a rate, a duration, a seed
Out:  `Planned` messages in the order of their times
Never: waits or sends; the player does
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

TURN_GAP_S = (3.0, 12.0)
"""Seconds between two messages of one session."""
_TURNS = (1, 1, 2, 2, 3, 4)


@dataclass(frozen=True, slots=True)
class Planned:
    """One message that is due at one moment. Made by `plan`, read by the player."""

    number: int
    """Position in the play, from 0."""
    due_s: float
    """Seconds after the start of the play."""
    message: int
    """Index of the message."""
    play: int
    """How often this message was played before."""
    session: str
    """Session it belongs to."""
    subject: str
    """The customer whose session it is."""
    last: bool
    """True for the last message of its session."""


@dataclass(frozen=True, slots=True)
class _Session:
    name: str
    subject: str
    turns_left: int


def plan(messages: int, *, rate: float, seconds: float, seed: int, run: str) -> list[Planned]:
    """`rate` messages a second for `seconds`, in shuffled order; all of them again if too few.

    `run` makes the names of sessions differ from those of another run on the same home.
    """
    random = Random(f"plan:{seed}")  # noqa: S311  # a play must be repeatable, not secret
    order = _shuffled_forever(random, messages)
    waiting: list[tuple[float, int, _Session]] = []  # sessions by the time of their next turn
    planned: list[Planned] = []
    for number in range(int(rate * seconds)):
        due = number / rate
        if waiting and waiting[0][0] <= due:
            session = heapq.heappop(waiting)[2]
        else:
            customer = f"{run}-customer-{random.randrange(messages)}"
            session = _Session(f"{run}-session-{number}", customer, random.choice(_TURNS))
        left = session.turns_left - 1
        if left:
            again = _Session(session.name, session.subject, left)
            heapq.heappush(waiting, (due + random.uniform(*TURN_GAP_S), number, again))
        message, play = next(order)
        planned.append(
            Planned(number, due, message, play, session.name, session.subject, left == 0)
        )
    return planned


def _shuffled_forever(random: Random, n: int) -> Iterator[tuple[int, int]]:
    play = 0
    while True:
        indices = list(range(n))
        random.shuffle(indices)
        yield from ((index, play) for index in indices)
        play += 1
