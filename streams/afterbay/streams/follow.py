"""Follow topics from their start, in memory: for whoever folds all events of a topic into a state.

In:   committed messages of a few topics
Out:  `Followed` events in offset order per partition; whether the end was reached once
Refuses: messages that are no event; they are counted and left to the sink, which keeps them
Never: joins a group or stores a position; the next start reads everything again
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    Message,
    TopicPartition,
)

from afterbay.lakehouse.positions import SourcePartition
from afterbay.schemas.codec import decode
from afterbay.schemas.errors import Rejected
from afterbay.schemas.events import Event
from afterbay.streams.admin import partitions_of
from afterbay.streams.kafka import KafkaAddress, as_ours, consumer_config, log

_BATCH = 1_000


@dataclass(frozen=True, slots=True)
class Followed:
    """One event and where it was read. Made by `Follower`, read by scheduler, nodes, outbox."""

    event: Event
    source: SourcePartition
    offset: int

    @property
    def partition(self) -> int:
        """Partition it was read from."""
        return self.source.partition


class Follower:
    """Polls committed events of `topics`. One thread."""

    def __init__(
        self, address: KafkaAddress, topics: Iterable[str], *, from_start: bool = True
    ) -> None:
        self._address = address
        places = partitions_of(address, topics)
        self._places = {(p.topic, p.partition): p for p in places}
        self._next = dict.fromkeys(places, 0)
        self._behind = set(places)
        self.rejected = 0
        """Messages that were no event, so far."""
        self._consumer = Consumer(consumer_config(address, "follower"), logger=log)
        start = OFFSET_BEGINNING if from_start else OFFSET_END
        self._consumer.assign(
            [TopicPartition(address.topic(p.topic), p.partition, start) for p in places]
        )

    def poll(self, timeout_s: float) -> list[Followed]:
        """Events that arrived; waits at most `timeout_s` for the first."""
        first = self._consumer.poll(timeout_s)
        if first is None:
            return []
        # a batch call waits until its batch is full or its time is over, so it gets none
        found = (self._take(m) for m in (first, *self._consumer.consume(_BATCH, 0)))
        return [followed for followed in found if followed is not None]

    @property
    def caught_up(self) -> bool:
        """True once the end of every partition was reached."""
        return not self._behind

    def next_offset(self, place: SourcePartition) -> int:
        """Offset after the last record read or skipped in a partition; 0 before the first."""
        return self._next[place]

    def close(self) -> None:
        """Let go of the connection."""
        self._consumer.close()

    def _take(self, message: Message) -> Followed | None:
        error, offset = message.error(), message.offset()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            raise as_ours(error, f"following {self._address.logical(message.topic() or 'topics')}")
        place = self._places[self._address.logical(message.topic() or ""), message.partition() or 0]
        if error is not None:
            self._behind.discard(place)
            self._next[place] = max(self._next[place], offset or 0)
            return None
        at = offset or 0
        self._next[place] = at + 1
        event = decode(message.value(), place.topic)
        if isinstance(event, Rejected):
            self.rejected += 1
            log.warning("%s %s/%d: skipped, %s", place.topic, place.partition, at, event.reason)
            return None
        return Followed(event, place, at)


def follow_topic(
    address: KafkaAddress, topics: Iterable[str], *, from_start: bool = True
) -> Follower:
    """A follower of `topics`, from their first event or from now."""
    return Follower(address, topics, from_start=from_start)
