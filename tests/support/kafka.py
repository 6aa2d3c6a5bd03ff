"""A real Kafka for tests: one broker a session, its own topics for every test.

The fixtures `kafka` and `log` in tests/conftest.py are made from this. A test that kills or stops
its broker takes one of its own with `own_broker`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from afterbay.platform.broker import EmbeddedBroker
from afterbay.platform.home import Home
from afterbay.streams.admin import ensure_topics
from afterbay.streams.kafka import KafkaAddress

TEST_HEAP_MB = 512
TEST_PARTITIONS = 2


@contextmanager
def own_broker(folder: Path) -> Iterator[EmbeddedBroker]:
    """A running broker with its data in `folder`; stopped afterwards, whatever happened."""
    broker = EmbeddedBroker(Home(folder), heap_mb=TEST_HEAP_MB, quick=True)
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()


def fresh_log(bootstrap: str) -> KafkaAddress:
    """An event log nobody else uses: every topic, 2 partitions, under a fresh prefix."""
    address = KafkaAddress(bootstrap, prefix=f"t{uuid.uuid4().hex[:12]}.")
    ensure_topics(address, TEST_PARTITIONS)
    return address
