"""Make the topics, and tell their ids and offsets.

In:   a Kafka address, the number of partitions
Out:  every topic of `topics.TOPICS`, with its retention and cap; their ids, partitions, first and
      end offsets; how many consumers a group has
Refuses: a missing topic, an unreachable broker (Unavailable)
Never: changes or deletes a topic that exists
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from concurrent.futures import Future

from confluent_kafka import (
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # re-exported without saying so
    AdminClient,
    NewTopic,
    OffsetSpec,
    TopicDescription,
)

from afterbay.lakehouse.positions import SourcePartition
from afterbay.schemas.errors import Unavailable
from afterbay.schemas.topics import MAX_MESSAGE_BYTES, TABLES, TOPICS, Topic
from afterbay.streams.kafka import ENVELOPE_BYTES, KafkaAddress, client_config, log, raised

_TIMEOUT_S = 15.0
_PAUSE_S = 0.2


def ensure_topics(address: KafkaAddress, partitions: int) -> tuple[str, ...]:
    """Make every topic that is missing; logical names of those made. Safe to repeat."""
    wanted = {address.topic(t.name): t for t in TOPICS.values()}
    new = [_new_topic(name, facts, partitions) for name, facts in wanted.items()]
    made = []
    admin = _admin(address)  # held until the answers are in: dropping it cancels them
    for name, future in admin.create_topics(new, request_timeout=_TIMEOUT_S).items():
        try:
            future.result()
            made.append(wanted[name].name)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise raised(error, f"creating topic {wanted[name].name}") from None
    return tuple(made)


def topic_ids(address: KafkaAddress, topics: Iterable[str] = tuple(TOPICS)) -> dict[str, str]:
    """Kafka's id of each topic, by logical name; Unavailable if one is missing."""
    return {name: _id(found) for name, found in _describe(address, topics).items()}


def partitions_of(
    address: KafkaAddress, topics: Iterable[str] = tuple(TABLES)
) -> tuple[SourcePartition, ...]:
    """Every partition of these topics as they are now."""
    described = _describe(address, topics).items()
    return tuple(
        SourcePartition(name, _id(found), part.id)
        for name, found in described
        for part in found.partitions
    )


class TopicIds:
    """Ids of topics as they are now, over one connection: was one made again under its name?"""

    def __init__(self, address: KafkaAddress) -> None:
        self._address = address
        self._admin = _admin(address)

    def __call__(self, topics: Iterable[str]) -> dict[str, str]:
        """Kafka's id of each topic, by logical name; one that is not there is left out."""
        names = {self._address.topic(name): name for name in topics}
        asked = TopicCollection(list(names))
        futures = self._admin.describe_topics(asked, request_timeout=_TIMEOUT_S)
        found: dict[str, str] = {}
        for physical, future in futures.items():
            try:
                found[names[physical]] = _id(future.result())
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise raised(error, f"describing topic {names[physical]}") from None
        return found


class EndOffsets:
    """End offsets of a few topics, over one connection. Cheap enough to ask every second."""

    def __init__(self, address: KafkaAddress, topics: Iterable[str]) -> None:
        self._address = address
        self._topics = tuple(topics)
        self._admin = _admin(address)
        self._places: tuple[SourcePartition, ...] = ()

    def __call__(
        self, isolation: IsolationLevel = IsolationLevel.READ_COMMITTED
    ) -> dict[SourcePartition, int]:
        """Offset after the last record of each partition, or after the last decided one."""
        if not self._places:
            self._places = partitions_of(self._address, self._topics)
        asked = {TopicPartition(self._address.topic(p.topic), p.partition): p for p in self._places}
        latest: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # no annotations
        found = self._admin.list_offsets(
            dict.fromkeys(asked, latest),
            isolation_level=isolation,
            request_timeout=_TIMEOUT_S,
        )
        try:
            return {asked[where]: future.result().offset for where, future in found.items()}
        except KafkaException as error:
            # a client that saw a broker die goes on asking with the leader epoch it knew: for ever
            self._admin, self._places = _admin(self._address), ()
            raise raised(error, "asking for end offsets") from None


def first_offsets(address: KafkaAddress, topics: Iterable[str]) -> dict[SourcePartition, int]:
    """The oldest offset that each partition of `topics` still holds."""
    places = partitions_of(address, topics)
    asked = {TopicPartition(address.topic(p.topic), p.partition): p for p in places}
    earliest: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]  # as above
    admin = _admin(address)
    found = admin.list_offsets(dict.fromkeys(asked, earliest), request_timeout=_TIMEOUT_S)
    try:
        return {asked[where]: future.result().offset for where, future in found.items()}
    except KafkaException as error:
        raise raised(error, "asking for first offsets") from None


def group_members(address: KafkaAddress, group: str) -> int:
    """Consumers that are in the group `group` now, on whatever machine.

    A broker that has just started does not know its groups yet; it is asked again for a while.
    """
    end = time.monotonic() + _TIMEOUT_S
    while True:
        try:
            return _members(_admin(address), address.group(group))
        except KafkaException as error:
            ours = raised(error, f"asking who is in group {group}")
            if not isinstance(ours, Unavailable) or time.monotonic() > end:
                raise ours from None
            time.sleep(_PAUSE_S)


def _members(admin: AdminClient, name: str) -> int:
    futures = admin.describe_consumer_groups([name], request_timeout=_TIMEOUT_S)
    try:
        return len(futures[name].result().members)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
            return 0
        raise


def _admin(address: KafkaAddress) -> AdminClient:
    return AdminClient(client_config(address), logger=log)


def _new_topic(physical: str, facts: Topic, partitions: int) -> NewTopic:
    config = {
        "retention.ms": str(facts.retention_ms),
        "max.message.bytes": str(MAX_MESSAGE_BYTES + ENVELOPE_BYTES),
        # the archive's date is the broker's time, which no producer can shift
        "message.timestamp.type": "LogAppendTime",
        "cleanup.policy": "compact" if facts.compacted else "delete",
    }
    if facts.compacted:
        # a cursor a flush: small segments let compaction keep the topic as short as its sources
        config |= {"segment.ms": "600000", "min.cleanable.dirty.ratio": "0.1"}
    count = 1 if facts.single else partitions
    return NewTopic(physical, num_partitions=count, replication_factor=-1, config=config)


def _describe(address: KafkaAddress, topics: Iterable[str]) -> dict[str, TopicDescription]:
    names = {address.topic(name): name for name in topics}
    admin = _admin(address)
    futures = admin.describe_topics(TopicCollection(list(names)), request_timeout=_TIMEOUT_S)
    return {names[physical]: _found(names[physical], f) for physical, f in futures.items()}


def _found(name: str, future: Future[TopicDescription]) -> TopicDescription:
    try:
        return future.result()
    except KafkaException as error:
        if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise Unavailable(
                f"topic {name} is not there yet; `afterbay topics` makes every topic"
            ) from None
        raise raised(error, f"describing topic {name}") from None


def _id(found: TopicDescription) -> str:
    # librdkafka prints base64's plain alphabet, Kafka's own tools the one for file names
    return str(found.topic_id).replace("+", "-").replace("/", "_")
