"""The one table of topic facts: topic creation, sink routing and docs are made from it.

In:   nothing
Out:  `TOPICS` (every topic) and `TABLES` (topic -> table, total but for `cursor.v2`)
Refuses: an unknown topic name, with the known ones (`topic`)
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

DAY_MS = 86_400_000
WEEK_MS = 7 * DAY_MS
FOREVER_MS = -1
MAX_MESSAGE_BYTES = 2 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """Facts about one topic. Read by the broker set-up, the sink, the outbox and the docs."""

    name: str
    key: str
    """Event field whose value is the Kafka key."""
    table: str | None
    """Delta table that holds its events; None for `cursor.v2` alone."""
    date_of: str = "event_id"
    """Field whose UUIDv7 date is the table's `date` partition."""
    partitions: int = 12
    """Never changed within a major version (the demo makes 4)."""
    retention_ms: int = WEEK_MS
    compacted: bool = False
    revision: int = 1
    """Newest schema revision; what producers write."""
    reasons: tuple[str, ...] = ()
    """Values its `reason`, `state`, `action` or `cause` field takes."""

    @property
    def single(self) -> bool:
        """True if the topic has one partition on every installation."""
        return self.partitions == 1


DEAD_REASONS = (
    "tombstone",
    "short",
    "magic",
    "fingerprint",
    "undecodable",
    "trailing",
    "oversized",
    "event_id",
    "event_time",
    "out_of_range",
    "redaction_failed",
    "encode",
)

_ALL = (
    Topic(name="inference.completed.v2", key="session_id", table="inference"),
    Topic(
        name="feedback.received.v2", key="inference_id", table="feedback", date_of="inference_id"
    ),
    Topic(
        name="reward.assigned.v2",
        key="inference_id",
        table="reward",
        date_of="inference_id",
        reasons=("feedback", "late", "default", "recompute"),
    ),
    Topic(
        name="policy.snapshot.v2",
        key="policy",
        table="policy",
        retention_ms=FOREVER_MS,
        reasons=("published", "canary", "promoted", "rolled_back", "retired"),
    ),
    Topic(name="policy.loaded.v2", key="node_id", table="loaded", retention_ms=FOREVER_MS),
    Topic(
        name="policy.ageing.v2", key="policy", table="ageing", reasons=("none", "split", "distil")
    ),
    Topic(
        name="experience.dropped.v2",
        key="inference_id",
        table="drop",
        date_of="inference_id",
        reasons=(
            "stale",
            "expired",
            "nan_logprob",
            "veto",
            "altered",
            "tokenizer",
            "untrainable",
            "length",
        ),
    ),
    Topic(
        name="subject.erasure.v2",
        key="subject",
        table="erasure",
        retention_ms=FOREVER_MS,
        reasons=("requested", "deferred", "destroying", "confirmed"),
    ),
    Topic(name="audit.access.v2", key="actor", table="access", retention_ms=FOREVER_MS),
    Topic(name="audit.root.v2", key="topic", table="root", retention_ms=FOREVER_MS),
    Topic(name="deadletter.v2", key="source_topic", table="deadletter", reasons=DEAD_REASONS),
    Topic(
        name="cursor.v2",
        key="source",
        table=None,
        partitions=1,
        retention_ms=FOREVER_MS,
        compacted=True,
    ),
)

TOPICS = MappingProxyType({t.name: t for t in _ALL})
"""Every topic by name."""

TABLES = MappingProxyType({t.name: t.table for t in _ALL if t.table is not None})
"""Table of every topic that has one."""

CURSOR_TOPIC = "cursor.v2"
ARCHIVE_TABLE = "archive"
EXPERIENCE_TABLE = "experience"
DEADLETTER_TABLE = "deadletter"


def topic(name: str) -> Topic:
    """Facts of `name`; KeyError naming the known topics if there is none."""
    found = TOPICS.get(name)
    if found is None:
        raise KeyError(f"no topic {name!r}; known topics: {', '.join(TOPICS)}")
    return found
