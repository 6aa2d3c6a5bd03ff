"""Where the event log is, and how every client of ours talks to it.

In:   a bootstrap address and a prefix
Out:  physical names of topics, groups and transactional ids; settings of librdkafka clients; its
      errors as ours
Never: opens a connection; a prefix never reaches an event or a table
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException

from afterbay.schemas.errors import AfterbayError, Fenced, OffsetGap, Retryable, Unavailable
from afterbay.schemas.topics import MAX_MESSAGE_BYTES

log = logging.getLogger("afterbay.kafka")

ENVELOPE_BYTES = 64 * 1024
"""Room for key, headers and batch framing around a message of the largest size."""
TRANSACTION_TIMEOUT_MS = 10_000

ClientConfig = dict[str, str | int | float | bool]
"""Settings of one librdkafka client."""

_FENCED = (
    KafkaError._FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.PRODUCER_FENCED,
    KafkaError.FENCED_INSTANCE_ID,
    KafkaError.FENCED_MEMBER_EPOCH,
)
_GAP = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)
_AWAY = (
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._MSG_TIMED_OUT,
    KafkaError._RESOLVE,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.NOT_COORDINATOR,
    KafkaError.LEADER_NOT_AVAILABLE,
)


@dataclass(frozen=True, slots=True)
class KafkaAddress:
    """One event log on one cluster. Made by entry points, read by every client."""

    bootstrap: str
    """`host:port`, comma-separated."""
    prefix: str = ""
    """Put before every physical name, so that several logs share a cluster."""

    def topic(self, name: str) -> str:
        """Physical name of a topic."""
        return self.prefix + name

    def logical(self, physical: str) -> str:
        """Logical name of a physical topic of this log."""
        return physical.removeprefix(self.prefix)

    def group(self, name: str) -> str:
        """Physical name of a consumer group."""
        return self.prefix + name

    def transactional_id(self, source: str) -> str:
        """Transactional id of a source of events."""
        return self.prefix + source


def client_config(address: KafkaAddress) -> ClientConfig:
    """What every client has in common."""
    return {
        "bootstrap.servers": address.bootstrap,
        "client.id": "afterbay",
        # a broker that restarts is back in seconds; the default of 10 s adds to every fault
        "reconnect.backoff.max.ms": 1_000,
        "socket.keepalive.enable": True,
        "log.connection.close": False,
    }


def producer_config(address: KafkaAddress, source: str) -> ClientConfig:
    """A transactional producer of one source."""
    return client_config(address) | {
        "transactional.id": address.transactional_id(source),
        "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
        "acks": "all",
        "linger.ms": 5,
        "compression.type": "lz4",
        "message.max.bytes": MAX_MESSAGE_BYTES + ENVELOPE_BYTES,
        # the hash that Kafka's own clients use, so that any producer agrees about a key's partition
        "partitioner": "murmur2_random",
    }


def consumer_config(address: KafkaAddress, group: str) -> ClientConfig:
    """A consumer of committed events that starts at explicit offsets only."""
    return client_config(address) | {
        "group.id": address.group(group),
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 100,
        "fetch.message.max.bytes": MAX_MESSAGE_BYTES + ENVELOPE_BYTES,
    }


def as_ours(error: KafkaError, place: str) -> AfterbayError:
    """One of our errors for one of librdkafka's, whose text names no payload."""
    code, text = error.code(), f"{place}: Kafka says {error.name()}"
    if code in _FENCED:
        return Fenced(f"{text}; another process has taken over, this one must stop")
    if code in _GAP:
        return OffsetGap(
            f"{text}: the log no longer holds the offset to read next; it was deleted before it "
            "was read, so compare the position with the log's range before moving it by hand"
        )
    if code in _AWAY:
        return Unavailable(f"{text}; check that the broker runs (`afterbay status`)")
    return Retryable(f"{text}; nothing was done, the same call may be made again")


def raised(exception: KafkaException, place: str) -> AfterbayError:
    """`as_ours` of the error inside an exception of confluent-kafka."""
    error: KafkaError = exception.args[0]
    return as_ours(error, place)
