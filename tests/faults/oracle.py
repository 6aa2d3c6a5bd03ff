"""Is every event where it must be, once? Judged without a line of the code that put it there.

In:   what was sent, the topics (its own consumer, committed records only), the tables (plain
      deltalake and pyarrow), Avro by plain fastavro
Out:  `Verdict`: ids lost, ids doubled, and what else is wrong
Never: asks the ledger, the decoder, the reward unit or `prove`; its sums are its own
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition
from deltalake import DeltaTable

INFERENCE, FEEDBACK, REWARD = (
    "inference.completed.v2",
    "feedback.received.v2",
    "reward.assigned.v2",
)
TABLE_OF = {INFERENCE: "inference", FEEDBACK: "feedback", REWARD: "reward"}
_WEIGHTS = {"person": 0.6, "model": 0.25, "rule": 0.15}
_HEADER_BYTES = 10
_WITHIN_S = 30.0
_AVRO = Path(__file__).parents[2] / "schemas" / "afterbay" / "schemas" / "avro"

Event = Mapping[str, Any]
Place = tuple[int, int]
"""Partition and offset."""


@dataclass(frozen=True, slots=True)
class Logged:
    """Every committed event of the topics. Made by `read_log`."""

    events: dict[str, dict[Place, Event]]
    """By topic and place, in offset order within a partition."""

    def of(self, topic: str) -> Iterable[Event]:
        """The events of one topic."""
        return self.events[topic].values()


@dataclass(slots=True)
class Verdict:
    """What the oracle found. Made by `judge`, written down by the runner."""

    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def compare(self, what: str, expected: Iterable[Any], found: Iterable[Any]) -> None:
        """Every expected thing once, and nothing else."""
        here, wanted = Counter(found), Counter(expected)
        self.lost += [f"{what}: {one}" for one in wanted if not here[one]]
        self.doubled += [f"{what}: {one}" for one, n in here.items() if n > 1]
        self.wrong += [f"{what}: unexpected {one}" for one in here if one not in wanted]

    def check(self, holds: bool, what: str) -> None:
        """Note `what` unless it holds."""
        if not holds:
            self.wrong.append(what)


def read_log(bootstrap: str, prefix: str) -> Logged:
    """Everything committed on the three topics."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"{prefix}oracle",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,
        }
    )
    try:
        return Logged({topic: dict(_records(consumer, prefix, topic)) for topic in TABLE_OF})
    finally:
        consumer.close()


def _records(consumer: Consumer, prefix: str, topic: str) -> Iterator[tuple[Place, Event]]:
    schema = fastavro.parse_schema(json.loads((_AVRO / topic / "1.avsc").read_text()))
    name = prefix + topic
    partitions = consumer.list_topics(name, timeout=_WITHIN_S).topics[name].partitions
    consumer.assign([TopicPartition(name, p, OFFSET_BEGINNING) for p in partitions])
    left = set(partitions)
    while left:
        message = consumer.poll(_WITHIN_S)
        assert message is not None, f"{topic}: no end within {_WITHIN_S} s"
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, f"{topic}: {error}"
            left.discard(message.partition() or 0)
            continue
        value = BytesIO((message.value() or b"")[_HEADER_BYTES:])
        event: Any = fastavro.schemaless_reader(value, schema, None)
        yield (message.partition() or 0, message.offset() or 0), event


class Lake:
    """The tables as any Delta reader sees them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def rows(self, table: str, *columns: str) -> list[dict[str, Any]]:
        """All rows of a table, or what of it can be read while it is written."""
        found: pa.Table = DeltaTable(str(self._folder / table)).to_pyarrow_table(
            columns=list(columns)
        )
        rows: list[dict[str, Any]] = found.to_pylist()
        return rows

    def values(self, table: str, column: str) -> list[Any]:
        """One column."""
        return [row[column] for row in self.rows(table, column)]


def opinions(feedback: Iterable[Event]) -> dict[str, list[Event]]:
    """Feedback that counts, by inference, in the order given: offset order."""
    heard: dict[str, list[Event]] = defaultdict(list)
    seen: set[tuple[str, str, str]] = set()
    for one in feedback:
        key = (one["inference_id"], one["caller"], one["idempotency_key"] or one["event_id"])
        if key not in seen and one["score"] is not None and one["source"] in _WEIGHTS:
            heard[one["inference_id"]].append(one)
        seen.add(key)
    return heard


def reward_of(said: Sequence[Event]) -> float:
    """Weighted mean of source means, the weights of those who spoke brought to 1."""
    scores: dict[str, list[float]] = defaultdict(list)
    for one in said:
        scores[one["source"]].append(one["score"])
    total = sum(_WEIGHTS[source] for source in scores)
    means = {source: sum(values) / len(values) for source, values in scores.items()}
    return sum(_WEIGHTS[source] * mean for source, mean in means.items()) / total


def rewards_settled(lake: Lake, sent: Iterable[str], defaults: bool) -> bool:
    """Whether every inference's newest reward in the tables counts all its opinions."""
    columns = ("inference_id", "caller", "idempotency_key", "event_id", "score", "source")
    rows = lake.rows("feedback", *columns, "_partition", "_offset")
    heard = opinions(sorted(rows, key=lambda row: (row["_partition"], row["_offset"])))
    counts: dict[str, int] = {}
    for row in lake.rows("reward", "inference_id", "feedback_count"):
        one = row["inference_id"]
        counts[one] = max(counts.get(one, -1), row["feedback_count"])
    wanted = {one: len(said) for one, said in heard.items()}
    if defaults:
        wanted |= {one: 0 for one in sent if one not in wanted}
    return all(counts.get(one, -1) == count for one, count in wanted.items())


def derived_settled(lake: Lake, logged: Logged) -> bool:
    """Whether tables reward and experience hold what the topics say."""
    asked = {event["event_id"] for event in logged.of(INFERENCE)}
    rewards = {event["event_id"]: event["inference_id"] for event in logged.of(REWARD)}
    joined = {reward for reward, inference in rewards.items() if inference in asked}
    return rewards.keys() <= set(lake.values("reward", "event_id")) and joined <= set(
        lake.values("experience", "reward_event_id")
    )


def judge(
    lake: Lake, logged: Logged, sent: Mapping[str, Iterable[str]], *, defaults: bool
) -> Verdict:
    """Everything there is to say about one schedule; `sent` holds event ids by topic."""
    verdict = Verdict()
    for topic, ids in sent.items():
        verdict.compare(f"log {topic}", ids, (event["event_id"] for event in logged.of(topic)))
    archived = lake.rows("archive", "_topic", "_kind", "_partition", "_offset", "_event_id")
    for topic, table in TABLE_OF.items():
        expected = [(*place, event["event_id"]) for place, event in logged.events[topic].items()]
        rows = lake.rows(table, "_partition", "_offset", "event_id")
        verdict.compare(f"table {table}", expected, (tuple(row.values()) for row in rows))
        kept = [row for row in archived if row["_topic"] == topic and row["_kind"] == "event"]
        found = ((r["_partition"], r["_offset"], r["_event_id"]) for r in kept)
        verdict.compare(f"archive {topic}", expected, found)
    dead = sum(row["_kind"] == "dead" for row in archived) + len(lake.rows("deadletter", "reason"))
    verdict.check(dead == 0, f"{dead} dead letters though every event is good")
    _judge_rewards(verdict, logged, defaults)
    _judge_experience(verdict, lake, logged)
    return verdict


def _judge_rewards(verdict: Verdict, logged: Logged, defaults: bool) -> None:
    """Each reward folds a beginning of its inference's opinions, and the last one all of them."""
    heard = opinions(logged.of(FEEDBACK))
    said = Counter(event["inference_id"] for event in logged.of(FEEDBACK))
    rewards: dict[str, list[Event]] = defaultdict(list)
    for reward in logged.of(REWARD):
        rewards[reward["inference_id"]].append(reward)
        _judge_reward(verdict, reward, heard.get(reward["inference_id"], []))
    for one, theirs in rewards.items():
        silent = said[one] - len(heard.get(one, []))
        for count, times in Counter(reward["feedback_count"] for reward in theirs).items():
            # an opinion that does not count makes its inference's reward anew, with the same result
            if times > 1 + (silent if count else 0):
                verdict.doubled.append(f"reward of {one}: {times} of {count} opinions")
    for one, theirs_heard in heard.items():
        newest = max((reward["feedback_count"] for reward in rewards[one]), default=-1)
        if newest < len(theirs_heard):
            verdict.lost.append(f"reward of {one}: {newest} of {len(theirs_heard)} opinions")
    asked = [event["event_id"] for event in logged.of(INFERENCE)]
    silent_ones = [one for one in asked if one not in heard and defaults]
    verdict.lost += [f"default reward of {one}" for one in silent_ones if not rewards[one]]


def _judge_reward(verdict: Verdict, reward: Event, said: Sequence[Event]) -> None:
    counted = said[: reward["feedback_count"]]
    expected = reward_of(counted) if counted else 0.5
    named = [one["event_id"] for one in counted]
    verdict.check(
        sorted(reward["feedback_ids"]) == sorted(named)
        and reward["feedback_count"] == len(named)
        and abs(reward["reward"] - expected) < 1e-9,
        f"reward {reward['event_id']}: {reward['reward']} of {reward['feedback_count']} opinions, "
        f"{expected} of {len(named)} expected",
    )


def _judge_experience(verdict: Verdict, lake: Lake, logged: Logged) -> None:
    """One row for every reward whose inference is there, in the range of its reward."""
    asked = {event["event_id"] for event in logged.of(INFERENCE)}
    joined = [r for r in logged.of(REWARD) if r["inference_id"] in asked]
    names = ("reward_event_id", "inference_id", "reward", "reward_range")
    rows = lake.rows("experience", *names)
    expected = [
        (r["event_id"], r["inference_id"], r["reward"], _range(r["reward"])) for r in joined
    ]
    verdict.compare("experience", expected, (tuple(row[name] for name in names) for row in rows))


def _range(reward: float) -> str:
    if reward < 0.3:
        return "low"
    return "mid" if reward < 0.7 else "high"
