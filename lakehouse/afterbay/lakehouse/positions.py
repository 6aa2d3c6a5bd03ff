"""Where in a log: a partition of one incarnation of a topic, and the next offset to read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class SourcePartition:
    """One partition of a topic. Made by the consumer, used as the key of every position."""

    topic: str
    """Logical topic name, as in `topics.py`."""
    topic_id: str
    """Kafka's id: a topic made again under its old name is another source."""
    partition: int

    def txn_id(self, pipeline: str) -> str:
        """Delta `txn` app id whose version is the NEXT offset that `pipeline` has to read."""
        return f"afterbay/{pipeline}/{self.topic}@{self.topic_id}/{self.partition}"


Positions = Mapping[SourcePartition, int]
"""Next offset to read, by partition."""


def further(one: Positions, other: Positions) -> dict[SourcePartition, int]:
    """The larger offset of each partition: a table that was restored stands back for a while."""
    return {place: max(one.get(place, 0), other.get(place, 0)) for place in {**one, **other}}


def parse_txn_id(text: str, pipeline: str) -> SourcePartition | None:
    """The partition that a txn app id of `pipeline` names; None for somebody else's."""
    prefix = f"afterbay/{pipeline}/"
    topic, at, rest = text.removeprefix(prefix).partition("@")
    topic_id, slash, partition = rest.rpartition("/")
    if not text.startswith(prefix) or not at or not slash or not partition.isdigit():
        return None
    return SourcePartition(topic, topic_id, int(partition))
