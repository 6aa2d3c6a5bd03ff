"""Send dead letters to their topic again: each once, however often it is asked for.

In:   dead letters, who opens them, and who makes an event of a record of the flusher's
Out:  the bytes as they came, with their key and the header `redrive_of`, in one transaction with a
      cursor `redrive/<dead letter id>` for each; `Outcome`s
Refuses: as an `Outcome`, a letter that is no event and one that does not open
Never: sends one whose cursor is committed or which the archive holds already; runs beside another:
       opening the outbox fences that one before the cursors are read
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from afterbay.lakehouse.deadletters import REDRIVE_HEADER, DeadLetter, redriven
from afterbay.lakehouse.lake import Lake
from afterbay.schemas.clock import Clock
from afterbay.schemas.codec import EncodeError, encode
from afterbay.schemas.errors import BadState, OutcomeUnknown
from afterbay.schemas.events import Cursor, Event
from afterbay.schemas.topics import MAX_MESSAGE_BYTES, TABLES, topic
from afterbay.streams.kafka import KafkaAddress
from afterbay.streams.letters import FLUSHER, Original
from afterbay.streams.outbox import Outbox, Raw, committed_cursors

SOURCE = "redrive"
_LETTERS = 100
_BYTES = 4 * 1024 * 1024
"""What one transaction takes at most, so that it is open for less than 200 ms."""

SENT, BEFORE, REFUSED = "sent", "sent before", "refused"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one dead letter. Made by `Redrive`, shown to people."""

    event_id: str
    """Of the dead letter."""
    topic: str
    """Where it belongs."""
    outcome: str
    """`sent`, `sent before` or `refused`."""
    why: str = ""
    """Why it was refused."""


@dataclass(frozen=True, slots=True)
class Openers:
    """How contents are got at. Made by the command, once its caller is known to be allowed to."""

    message: Callable[[DeadLetter], Original]
    """The message of a letter of the sink."""
    event: Callable[[DeadLetter], Event | str]
    """The event that a record of the flusher's makes now, or why it makes none."""


class Redrive:
    """One run of the command. Used once."""

    def __init__(self, lake: Lake, address: KafkaAddress, openers: Openers, clock: Clock) -> None:
        self._lake = lake
        self._address = address
        self._openers = openers
        self._clock = clock

    def send(self, letters: Sequence[DeadLetter]) -> list[Outcome]:
        """Send what was not sent yet; what became of each letter, in their order.

        OutcomeUnknown, Retryable: some may be out; asked again, those are not sent twice.
        """
        outbox = Outbox(SOURCE, self._address, self._clock)
        try:
            outbox.open()
            before = sent_before(self._lake, self._address, letters, self._clock)
            left = [letter for letter in letters if letter.event_id not in before]
            told = {o.event_id: o for group in _groups(left) for o in self._send(outbox, group)}
        finally:
            outbox.close()
        known = (
            told.get(x.event_id) or Outcome(x.event_id, x.source_topic, BEFORE) for x in letters
        )
        return list(known)

    def _send(self, outbox: Outbox, letters: Sequence[DeadLetter]) -> list[Outcome]:
        made = [(letter, self._made(letter)) for letter in letters]
        out = [(letter, raw) for letter, raw in made if isinstance(raw, Raw)]
        if out:
            done = [Cursor(source=_part(x.event_id), run_id=x.event_id) for x, _ in out]
            cursor = Cursor(source=SOURCE, run_id=out[-1][0].event_id)
            try:
                outbox.commit([raw for _, raw in out], cursor, done)
            except OutcomeUnknown as error:
                raise OutcomeUnknown(
                    f"redrive: Kafka did not say whether the last {len(out)} letters are out; run "
                    "the same command again, what is out is not sent twice"
                ) from error
        return [_outcome(letter, raw) for letter, raw in made]

    def _made(self, letter: DeadLetter) -> Raw | str:
        """What goes out for a letter, or why nothing can."""
        if letter.source_topic not in TABLES:
            return f"its bytes are no record or message of ours (topic {letter.source_topic})"
        try:
            if letter.stage == FLUSHER:
                return _of_event(letter, self._openers.event(letter))
            return _of_message(letter, self._openers.message(letter))
        except (BadState, EncodeError) as error:
            return str(error)


def sent_before(
    lake: Lake, address: KafkaAddress, letters: Sequence[DeadLetter], clock: Clock
) -> set[str]:
    """Ids of those letters that a cursor or the archive says were sent."""
    cursors = committed_cursors(address, lambda name: name.startswith(_part("")), clock)
    by_cursor = {x.event_id for x in letters if _part(x.event_id) in cursors}
    # a log that was made again has no cursors; the archive outlives it
    return by_cursor | redriven(lake, [(x.event_id, x.source_topic, x.at) for x in letters]).keys()


def _groups(letters: Sequence[DeadLetter]) -> Iterator[list[DeadLetter]]:
    """Letters in their order, as many together as one transaction takes."""
    group: list[DeadLetter] = []
    size = 0
    for letter in letters:
        if group and (len(group) >= _LETTERS or size + len(letter.sealed) > _BYTES):
            yield group
            group, size = [], 0
        group.append(letter)
        size += len(letter.sealed)
    if group:
        yield group


def _of_message(letter: DeadLetter, original: Original) -> Raw | str:
    if original.value is None:
        return "it is a tombstone, which holds no event"
    if len(original.value) > MAX_MESSAGE_BYTES:
        return f"its {len(original.value)} bytes are more than a message may have"
    kept = tuple(header for header in original.headers if header[0] != REDRIVE_HEADER)
    return Raw(letter.source_topic, original.key, original.value, (*kept, _header(letter)))


def _of_event(letter: DeadLetter, event: Event | str) -> Raw | str:
    if isinstance(event, str):
        return event
    key: str = getattr(event, topic(event.TOPIC).key)
    return Raw(event.TOPIC, key.encode(), encode(event), (_header(letter),))


def _header(letter: DeadLetter) -> tuple[str, bytes]:
    return REDRIVE_HEADER, letter.event_id.encode()


def _outcome(letter: DeadLetter, made: Raw | str) -> Outcome:
    if isinstance(made, str):
        return Outcome(letter.event_id, letter.source_topic, REFUSED, made)
    return Outcome(letter.event_id, letter.source_topic, SENT)


def _part(event_id: str) -> str:
    return f"{SOURCE}/{event_id}"
