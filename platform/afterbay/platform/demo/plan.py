"""When which message is played, and in whose session: fixed before the first one is sent.

In:   messages, a rate, a duration, a seed
Out:  `Planned` messages in the order of their times
Never: waits or sends; the player does
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from afterbay.platform.demo.messages import Message

TURN_GAP_S = (3.0, 12.0)
"""Seconds between two messages of one session."""
_TURNS = (1, 1, 1, 1, 1, 1, 1, 2, 2, 3)
"""How many messages a session has, each as likely."""


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
    category: str
    turns_left: int


class _Deck:
    """Messages in shuffled order, each dealt once before any is dealt again."""

    def __init__(self, messages: Sequence[Message], random: Random) -> None:
        self._messages = messages
        self._random = random
        self._plays = -1
        self._shuffle()

    def _shuffle(self) -> None:
        self._plays += 1
        order = list(range(len(self._messages)))
        self._random.shuffle(order)
        self._left = dict.fromkeys(order)
        self._of_category: dict[str, list[int]] = defaultdict(list)
        for index in order:
            self._of_category[self._messages[index].category].append(index)

    def deal(self, category: str | None) -> tuple[int, int]:
        """(message, times played before), of `category` if there is one left of it."""
        if not self._left:
            self._shuffle()
        same = self._of_category[category] if category is not None else []
        while same and same[-1] not in self._left:
            same.pop()
        index = same.pop() if same else next(iter(self._left))
        del self._left[index]
        return index, self._plays


def plan(
    messages: Sequence[Message], *, rate: float, seconds: float, seed: int, run: str
) -> list[Planned]:
    """`rate` messages a second for `seconds`, in shuffled order; all of them again if too few.

    A session stays with one category: a customer comes back to what was not settled.
    `run` makes the names of sessions differ from those of another run on the same home.
    """
    random = Random(f"plan:{seed}")  # noqa: S311  # a play must be repeatable, not secret
    deck = _Deck(messages, random)
    waiting: list[tuple[float, int, _Session]] = []  # sessions by the time of their next turn
    planned: list[Planned] = []
    for number in range(int(rate * seconds)):
        due = number / rate
        if waiting and waiting[0][0] <= due:
            session = heapq.heappop(waiting)[2]
            index, play = deck.deal(session.category)
        else:
            index, play = deck.deal(None)
            session = _begin(random, run, number, messages[index].category)
        left = session.turns_left - 1
        if left:
            again = _Session(session.name, session.subject, session.category, left)
            heapq.heappush(waiting, (due + random.uniform(*TURN_GAP_S), number, again))
        planned.append(Planned(number, due, index, play, session.name, session.subject, not left))
    return planned


def _begin(random: Random, run: str, number: int, category: str) -> _Session:
    customer = f"{run}-customer-{random.randrange(10_000)}"
    return _Session(f"{run}-session-{number}", customer, category, random.choice(_TURNS))
