"""Produce exactly once: events and the cursor of their source in one transaction.

In:   a batch of events, or of messages as they once were, and how far their source is once these
      are out
Out:  the events on their topics and the cursor on `cursor.v2`, all or none
Refuses: a second owner of the source (Fenced), a cursor of another source
Never: leaves a transaction open while idle; splits a batch; moves a cursor outside a transaction
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, Producer

from afterbay.schemas.clock import Clock
from afterbay.schemas.codec import encode
from afterbay.schemas.errors import AfterbayError, Fenced, OutcomeUnknown, Retryable, Unavailable
from afterbay.schemas.events import Cursor, Event
from afterbay.schemas.faults import crash_points
from afterbay.schemas.topics import CURSOR_TOPIC, topic
from afterbay.streams.admin import EndOffsets
from afterbay.streams.follow import Follower
from afterbay.streams.kafka import KafkaAddress, log, producer_config, raised

_INIT_S = 30.0
_SEND_S = 8.0
_COMMIT_S = 9.0


@dataclass(frozen=True, slots=True)
class Raw:
    """A message as bytes, for one that is sent again. Made by `redrive`."""

    topic: str
    """Logical name."""
    key: bytes | None
    value: bytes
    headers: tuple[tuple[str, str | bytes | None], ...] = ()


class Outbox:
    """Transactional producer of one source; a second one with the same source fences the first."""

    def __init__(self, source: str, address: KafkaAddress, clock: Clock) -> None:
        self.source = source
        self._address = address
        self._clock = clock
        self._producer: Producer | None = None

    def open(self) -> Cursor | None:
        """Fence predecessors, finish or abort what they left, and read the committed cursor.

        None if the source never produced. Call again after OutcomeUnknown and compare.
        """
        self.close()
        producer = Producer(producer_config(self._address, self.source), logger=log)
        try:
            producer.init_transactions(_INIT_S)
        except KafkaException as error:
            raise raised(error, f"outbox {self.source}: taking over") from None
        self._producer = producer
        return committed_cursor(self._address, self.source, self._clock)

    def commit(
        self, events: Sequence[Event | Raw], cursor: Cursor, done: Sequence[Cursor] = ()
    ) -> None:
        """Produce `events` and `cursor` in one transaction.

        `done`: cursors of parts of this source, `<source>/...`, each of which is told for good.
        Retryable: aborted, nothing happened. Fenced: another owner; give up. OutcomeUnknown: call
        `open` and compare its cursor with `cursor`.
        """
        others = [c.source for c in done if not c.source.startswith(f"{self.source}/")]
        if cursor.source != self.source or others:
            wrong = (cursor.source, *others)[-1]
            raise ValueError(f"outbox {self.source}: cursor of {wrong}; it moves only its own")
        producer = self._opened()
        # encoded before the transaction is open: while it is, everybody's later records wait
        messages = [self._encoded(event) for event in (*events, *done, cursor)]
        try:
            producer.begin_transaction()
            self._send(producer, messages)
            crash_points.reach("outbox.produced")
        except Exception as error:  # whatever it was, no transaction may stay open
            raise self._abort(producer, _kafka_error(error)) from error
        self._finish(producer)

    def close(self) -> None:
        """Let go of the producer; the cursor stays where the last commit put it."""
        if self._producer is not None:
            self._producer.purge()
            self._producer = None

    def _opened(self) -> Producer:
        if self._producer is None:
            raise Retryable(f"outbox {self.source}: not open; call open() and compare its cursor")
        return self._producer

    def _encoded(self, event: Event | Raw) -> Raw:
        if isinstance(event, Raw):
            return event
        facts = topic(event.TOPIC)
        key: str = getattr(event, facts.key)
        return Raw(facts.name, key.encode(), encode(event))

    def _send(self, producer: Producer, messages: Sequence[Raw]) -> None:
        for message in messages:
            self._produce(producer, message)
        # a message that was refused makes the commit ask for an abort, so none needs a callback
        if producer.flush(_SEND_S):
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    def _produce(self, producer: Producer, message: Raw) -> None:
        deadline = self._clock.monotonic() + _SEND_S
        name, headers = self._address.topic(message.topic), list(message.headers)
        while True:
            try:
                producer.produce(name, message.value, message.key, headers=headers)
            except BufferError:
                if self._clock.monotonic() > deadline:
                    raise KafkaException(KafkaError(KafkaError._QUEUE_FULL)) from None
                producer.poll(0.05)
            else:
                return

    def _finish(self, producer: Producer) -> None:
        deadline = self._clock.monotonic() + _COMMIT_S
        while True:
            try:
                producer.commit_transaction(max(0.1, deadline - self._clock.monotonic()))
                crash_points.reach("outbox.committed")
            except KafkaException as exception:
                error: KafkaError = exception.args[0]
                if error.txn_requires_abort():
                    raise self._abort(producer, error) from None
                if error.retriable() and self._clock.monotonic() < deadline:
                    continue
                raise self._unknown(error) from None
            except Exception as exception:  # only the cursor knows whether the events are out
                raise self._unknown(_kafka_error(exception)) from exception
            else:
                return

    def _abort(self, producer: Producer, error: KafkaError) -> AfterbayError:
        """Undo the open transaction; the error to raise says whether that is certain."""
        ours = raised(KafkaException(error), f"outbox {self.source}")
        if isinstance(ours, Fenced):
            return ours
        if not error.fatal():
            try:
                producer.abort_transaction(_COMMIT_S)
            except KafkaException as undone:
                error = undone.args[0]
            else:
                return ours if isinstance(ours, Retryable) else Unavailable(str(ours))
        return self._unknown(error)

    def _unknown(self, error: KafkaError) -> AfterbayError:
        ours = raised(KafkaException(error), f"outbox {self.source}: ending a transaction")
        if isinstance(ours, Fenced):
            return ours
        self.close()
        return OutcomeUnknown(
            f"outbox {self.source}: Kafka says {error.name()} at the end of a transaction; "
            "open() again and compare its cursor: it tells whether the events are out"
        )


def _kafka_error(error: Exception) -> KafkaError:
    """Kafka's part of an exception; one that is not Kafka's is a plain failure."""
    if isinstance(error, KafkaException) and error.args:
        found: KafkaError = error.args[0]
        return found
    return KafkaError(KafkaError._FAIL)


def committed_cursor(address: KafkaAddress, source: str, clock: Clock) -> Cursor | None:
    """Newest committed cursor of `source`; None if it has none."""
    return committed_cursors(address, lambda name: name == source, clock).get(source)


def committed_cursors(
    address: KafkaAddress, wanted: Callable[[str], bool], clock: Clock
) -> dict[str, Cursor]:
    """Newest committed cursor of every source whose name is `wanted`.

    Waits until every transaction that was open at the call is decided: one of another source may
    hide a committed cursor of ours.
    """
    ends = EndOffsets(address, [CURSOR_TOPIC])(IsolationLevel.READ_UNCOMMITTED)
    deadline = clock.monotonic() + _INIT_S
    found: dict[str, Cursor] = {}
    follower = Follower(address, [CURSOR_TOPIC])
    try:
        while any(follower.next_offset(p) < end for p, end in ends.items()):
            for followed in follower.poll(0.2):
                if isinstance(followed.event, Cursor) and wanted(followed.event.source):
                    found[followed.event.source] = followed.event
            if clock.monotonic() > deadline:
                raise Unavailable(
                    f"the end of {CURSOR_TOPIC} was not reached in {_INIT_S:.0f} s; another "
                    "producer's transaction hangs, or the broker is slow; try again"
                )
    finally:
        follower.close()
    return found
