"""How far the data have come: rows of every table, what each step has still to take in, the arms.

In:   the lake; the event log (may be away)
Out:  `Progress`, counted in rows; offset differences are never counts, because control records and
      aborted events take offsets too
Never: joins a consumer group, moves a position, or waits long for a broker
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from confluent_kafka import Consumer, TopicPartition

from afterbay.lakehouse import tables
from afterbay.lakehouse.handle import TableHandle
from afterbay.lakehouse.lake import Lake
from afterbay.lakehouse.positions import SourcePartition, parse_txn_id
from afterbay.lakehouse.watermarks import OffsetReader
from afterbay.platform.broker import require
from afterbay.platform.settings import Settings
from afterbay.schemas.errors import AfterbayError, Unavailable
from afterbay.schemas.events import Cursor, PolicySnapshot
from afterbay.schemas.topics import ARCHIVE_TABLE, EXPERIENCE_TABLE, TABLES
from afterbay.streams.admin import EndOffsets
from afterbay.streams.arms import ArmState
from afterbay.streams.follow import Follower
from afterbay.streams.kafka import KafkaAddress, consumer_config, log
from afterbay.streams.rewarder import SOURCE as REWARDER
from afterbay.streams.rewarder import offsets_of

_KAFKA_S = 2.0
_COUNT_S = 5.0
_READ_S = 10.0
_BATCH = 1_000
_FOLLOWED = (PolicySnapshot.TOPIC, Cursor.TOPIC)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Progress:
    """One look at the data. Made by `Looker`, shown by `afterbay status`."""

    tables: dict[str, int]
    """Rows of each table."""
    lag: dict[str, int | None]
    """Rows that an agent has still to take in (of many, at least so many); None: not known now."""
    arms: dict[str, object] | None
    """Policy, shares of the arms, published snapshots and their standing; None: no broker."""
    problems: tuple[str, ...]
    """What could not be looked at, and what to do."""


class Looker:
    """Looks again and again, cheaply: handles and the follower of the log stay open."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lake = Lake(str(settings.home.lake))
        self._handles = {name: TableHandle(self._lake, name) for name in tables.NAMES}
        self._log = _Log(KafkaAddress(settings.bootstrap, settings.prefix), settings.policy)

    def look(self) -> Progress:
        """One look; what is away is told in `problems`."""
        problems: list[str] = []
        rows = _attempt(self._rows, problems) or {}
        reached = _attempt(self._log.catch_up, problems) is not None
        steps: dict[str, Callable[[], int | None]] = {
            "sink": self._sink_lag,
            "rewarder": self._rewarder_lag,
            "bucketer": self._bucketer_lag,
        }
        asked = {
            name: step for name, step in steps.items() if rows and (reached or name == "bucketer")
        }
        lag = {name: _attempt(asked[name], problems) if name in asked else None for name in steps}
        return Progress(rows, lag, self._log.arms() if reached else None, tuple(problems))

    def close(self) -> None:
        """Let go of the log."""
        self._log.close()

    def _rows(self) -> dict[str, int]:
        return {name: int(handle.newest().count()) for name, handle in self._handles.items()}

    def _positions(self, table: str, pipeline: str) -> dict[SourcePartition, int]:
        named = {parse_txn_id(n, pipeline): v for n, v in self._handles[table].txns.items()}
        return {place: version for place, version in named.items() if place is not None}

    def _sink_lag(self) -> int:
        return self._log.count_after(self._positions(ARCHIVE_TABLE, "sink"))

    def _rewarder_lag(self) -> int:
        return self._unread("feedback", self._log.rewarder_positions())

    def _bucketer_lag(self) -> int:
        positions = self._positions(EXPERIENCE_TABLE, "bucketer")
        return self._unread("reward", positions) + self._unread("inference", positions)

    def _unread(self, table: str, after: dict[SourcePartition, int]) -> int:
        rows = OffsetReader(self._lake, table, "sink", ["_offset"]).read(after).rows
        return int(rows.num_rows)


class _Log:
    """The parts of the event log that a status is made of."""

    def __init__(self, address: KafkaAddress, policy: str) -> None:
        self._address = address
        self._policy = policy
        self._follower: Follower | None = None
        self._arms = ArmState()
        self._rewarder: Cursor | None = None

    # The two below connect at once, so they wait until somebody is known to answer.

    @cached_property
    def _followed(self) -> EndOffsets:
        return EndOffsets(self._address, _FOLLOWED)

    @cached_property
    def _stored(self) -> EndOffsets:
        return EndOffsets(self._address, tuple(TABLES))

    def catch_up(self) -> bool:
        """Read policy events and cursors to their present end; Unavailable if no broker answers."""
        require(self._address.bootstrap, _KAFKA_S)
        if self._follower is None:
            self._follower = Follower(self._address, _FOLLOWED)
        follower, ends = self._follower, self._followed()
        deadline = time.monotonic() + _READ_S
        while any(follower.next_offset(place) < end for place, end in ends.items()):
            self._take(follower)
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"policy events and cursors: not read in {_READ_S:g} s; try again"
                )
        return True

    def arms(self) -> dict[str, object]:
        """Where the policy stands."""
        return {
            "policy": self._policy,
            "serving": {
                share.arm: {
                    "snapshot_id": share.snapshot.snapshot_id,
                    "probability": share.probability,
                }
                for share in self._arms.shares()
            },
            "published": len(self._arms.published),
            "standing": dict(self._arms.standing),
        }

    def rewarder_positions(self) -> dict[SourcePartition, int]:
        """Feedback offsets that the rewarder has taken in."""
        return offsets_of(self._rewarder) if self._rewarder is not None else {}

    def count_after(self, positions: dict[SourcePartition, int]) -> int:
        """Committed events at or past `positions`, over all topics that have a table."""
        ends = self._stored()
        behind = {p: positions.get(p, 0) for p, end in ends.items() if end > positions.get(p, 0)}
        return _count(self._address, behind, ends) if behind else 0

    def close(self) -> None:
        """Let go of the connection."""
        if self._follower is not None:
            self._follower.close()

    def _take(self, follower: Follower) -> None:
        for followed in follower.poll(0.1):
            event = followed.event
            if isinstance(event, PolicySnapshot) and event.policy == self._policy:
                self._arms = self._arms.advance(event)
            elif isinstance(event, Cursor) and event.source == REWARDER:
                self._rewarder = event


def _count(
    address: KafkaAddress, start: dict[SourcePartition, int], ends: dict[SourcePartition, int]
) -> int:
    consumer = Consumer(consumer_config(address, "status"), logger=log)
    places = {(address.topic(p.topic), p.partition): p for p in start}
    consumer.assign([TopicPartition(*where, start[place]) for where, place in places.items()])
    left, found = set(start), 0
    deadline = time.monotonic() + _COUNT_S
    try:
        while left and time.monotonic() < deadline:
            for message in consumer.consume(_BATCH, 0.1):
                place = places[message.topic() or "", message.partition() or 0]
                found += message.error() is None
                if message.error() is not None or (message.offset() or 0) + 1 >= ends[place]:
                    left.discard(place)  # its end, or nothing more to be had from it now
    finally:
        consumer.close()
    return found


def _attempt(call: Callable[[], T], problems: list[str]) -> T | None:
    try:
        return call()
    except AfterbayError as error:
        problems.append(str(error))
        return None
