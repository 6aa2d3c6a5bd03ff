"""A lake in which every table holds events, consistent with its archive, made without the agents.

Second implementation of what sink, rewarder and bucketer do, row by row, for `prove` to agree with.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pyarrow as pa

from afterbay.dsa.rewards import Edges
from afterbay.lakehouse import archive, tables
from afterbay.lakehouse.lake import Lake
from afterbay.lakehouse.ledger import TableLedger
from afterbay.lakehouse.positions import SourcePartition
from afterbay.schemas import ids
from afterbay.schemas.codec import encode
from afterbay.schemas.events import EVENT_TYPES
from afterbay.schemas.topics import TABLES, topic
from tests.support.lakes import row

DAY_ONE = datetime(2026, 3, 1, 23, 59, 58, tzinfo=UTC)
INFERENCES, FEEDBACK, REWARDS = (
    "inference.completed.v2",
    "feedback.received.v2",
    "reward.assigned.v2",
)
DEAD = "deadletter.v2"
Messages = list[tuple[int, dict[str, Any] | bytes]]
"""Offset, and the event or the bytes of a message that is none."""


class WholeLake:
    """Puts events through by hand: `send`, then `flush`; time goes on by a second an event."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self.now = DAY_ONE
        self._sent: dict[SourcePartition, Messages] = {}
        self._next: dict[SourcePartition, int] = defaultdict(int)
        self._taken: dict[SourcePartition, int] = defaultdict(int)
        self.rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
        """What every table must hold."""
        tables.ensure(lake)

    def new_id(self) -> str:
        self.now += timedelta(seconds=1)
        return ids.new_id(self.now)

    def send(self, name: str, partition: int = 0, gap: int = 0, **values: Any) -> str:
        """One event of a topic, `gap` offsets after the one before; its id."""
        event_id = self.new_id()
        columns = [f for f in tables.arrow_schema(TABLES[name]).names if f[0] != "_"]
        whole = row(TABLES[name], event_id=event_id, **values)
        event = {column: whole[column] for column in columns if column != "date"}
        self._queue(name, partition, gap, event)
        return event_id

    def send_broken(self, name: str, partition: int = 0) -> None:
        """A message that is no event."""
        self._queue(name, partition, 0, b"broken")

    def flush(self, tail: int = 1) -> None:
        """Archive and table rows of everything sent; then `tail` control records and a gap row."""
        for source, messages in self._sent.items():
            self._archive(source, messages)
            self._append(source, messages)
            end = self._taken[source] + tail
            gap = archive.gap_row(source, self._taken[source], end, self.now)
            self._move("archive", source, gap, end)
            for table in (TABLES[source.topic], "deadletter"):
                self._move(table, source, None, end)
            self._taken[source] = self._next[source] = end
        self._sent = {}

    def archive_only(self) -> None:
        """Archive everything sent, as a sink does that dies before the tables have it."""
        for source, messages in self._sent.items():
            self._archive(source, messages)
        self._sent = {}

    def bucket(self) -> None:
        """Experience of every pair that is not there yet."""
        known = {r["reward_event_id"] for r in self.rows["experience"]}
        inferences = {r["event_id"]: r for r in self.rows["inference"]}
        new = [
            _experience(inferences[r["inference_id"]], r)
            for r in self.rows["reward"]
            if r["event_id"] not in known and r["inference_id"] in inferences
        ]
        self.rows["experience"] += new
        moved = {p: v for p, v in self._taken.items() if p.topic in (INFERENCES, REWARDS)}
        ledger = TableLedger(self.lake, "experience", "bucketer")
        ledger.append(_table("experience", new), ledger.next_offsets(moved), moved)

    def _queue(self, name: str, partition: int, gap: int, event: dict[str, Any] | bytes) -> None:
        source = SourcePartition(name, f"id-{name}", partition)
        self._next[source] += gap
        self._sent.setdefault(source, []).append((self._next[source], event))
        self._next[source] += 1

    def _archive(self, source: SourcePartition, messages: Messages) -> None:
        stored = [self._message(source, offset, event) for offset, event in messages]
        rows = archive.rows(source, self._taken[source], stored)
        self._move("archive", source, rows, messages[-1][0] + 1)

    def _append(self, source: SourcePartition, messages: Messages) -> None:
        end = messages[-1][0] + 1
        good = [self._event_row(source, o, e) for o, e in messages if isinstance(e, dict)]
        dead = [self._dead_row(source, o) for o, e in messages if not isinstance(e, dict)]
        table = TABLES[source.topic]
        self.rows[table] += good
        self.rows["deadletter"] += dead
        if table == "deadletter":
            good, dead = [], [*good, *dead]
        else:
            self._move(table, source, _table(table, good), end)
        self._move("deadletter", source, _table("deadletter", dead), end)
        self._taken[source] = end

    def _move(self, table: str, source: SourcePartition, rows: Any, end: int) -> None:
        ledger = TableLedger(self.lake, table, "sink")
        ledger.append(rows, ledger.next_offsets([source]), {source: end})

    def _message(
        self, source: SourcePartition, offset: int, event: dict[str, Any] | bytes
    ) -> archive.Message:
        at = int(self.now.timestamp() * 1000)
        if isinstance(event, bytes):
            return archive.Message(offset, at, b"k", (), event, None, dead=True)
        kind = EVENT_TYPES[source.topic]
        value = encode(msgspec.convert(event, kind, builtin_types=(datetime,)))
        headers = (("h", b"v"),)
        return archive.Message(offset, at, b"key", headers, value, event["event_id"])

    def _event_row(
        self, source: SourcePartition, offset: int, event: dict[str, Any]
    ) -> dict[str, Any]:
        date = ids.date_label(event[topic(source.topic).date_of])
        return {**event, **self._place(source, offset), "date": date}

    def _dead_row(self, source: SourcePartition, offset: int) -> dict[str, Any]:
        event_id = self.new_id()
        dead = row("deadletter", event_id=event_id, source_topic=source.topic, reason="magic")
        return {**dead, **self._place(source, offset), "date": ids.date_label(event_id)}

    def _place(self, source: SourcePartition, offset: int) -> dict[str, Any]:
        return {
            "_topic": source.topic,
            "_topic_id": source.topic_id,
            "_partition": source.partition,
            "_offset": offset,
            "_ts": self.now,
        }


def filled(lake: Lake) -> WholeLake:
    """A lake with events in every table: late and early rewards, a correction, a dead message."""
    whole = WholeLake(lake)
    answers = [
        whole.send(INFERENCES, n % 2, session_id=f"s{n}", prompt_ids=[n, 7], response="r")
        for n in range(6)
    ]
    for score, answer in zip((0.1, 0.5, 0.9, 1.0), answers, strict=False):
        opinion = whole.send(FEEDBACK, inference_id=answer, score=score, gap=1)
        _reward(whole, answer, score, [opinion])
    _reward(whole, whole.new_id(), 0.5, [])
    _reward(whole, answers[5], 0.5, [])
    whole.flush()
    whole.bucket()
    second = whole.send(FEEDBACK, inference_id=answers[0], score=0.9)
    _reward(whole, answers[0], 0.7, [second])
    for name in set(TABLES) - {INFERENCES, FEEDBACK, REWARDS}:
        of_inference = topic(name).date_of == "inference_id"
        about: dict[str, Any] = {"inference_id": answers[0]} if of_inference else {}
        for _ in range(3):
            whole.send(name, **about)
    whole.send_broken(INFERENCES)
    whole.flush()
    whole.bucket()
    return whole


def _reward(whole: WholeLake, inference_id: str, reward: float, opinions: list[str]) -> str:
    return whole.send(
        REWARDS,
        inference_id=inference_id,
        reward=reward,
        feedback_ids=opinions,
        feedback_count=len(opinions),
        generation=1,
        cause="feedback" if opinions else "default",
    )


def _experience(inference: dict[str, Any], reward: dict[str, Any]) -> dict[str, Any]:
    edges = Edges()
    label = "low" if reward["reward"] < 0.3 else "mid" if reward["reward"] < 0.7 else "high"
    places = {
        f"{side}_{name}": event[f"_{name}"]
        for side, event in (("inference", inference), ("reward", reward))
        for name in tables.EXPERIENCE_PLACES
    }
    return {
        "inference_id": inference["event_id"],
        **{name: inference[name] for name in tables.EXPERIENCE_FROM_INFERENCE},
        "reward_event_id": reward["event_id"],
        **{name: reward[name] for name in tables.EXPERIENCE_FROM_REWARD},
        "edges_id": edges.edges_id,
        **places,
        "date": inference["date"],
        "reward_range": label,
    }


def _table(name: str, rows: Iterable[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), tables.arrow_schema(name))
