"""Fixtures that several test folders share. Imports are inside, so unit tests pay for none."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from afterbay.streams.kafka import KafkaAddress

# CI judges a change, so it draws the same cases each time; elsewhere new ones are looked for
settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Bootstrap address of a real broker that lives as long as the test session."""
    from tests.support.kafka import own_broker

    with own_broker(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker.bootstrap


@pytest.fixture
def log(kafka: str) -> KafkaAddress:
    """An event log of the test's own: every topic, 2 partitions, under a fresh prefix."""
    from tests.support.kafka import fresh_log

    return fresh_log(kafka)
