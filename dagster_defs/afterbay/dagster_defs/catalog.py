"""What Dagster shows but does not make: topics, the tables that agents write, and who feeds whom.

In:   `schemas.topics` and the schema files
Out:  one external asset per topic and per table
Never: runs anything; agents write these while Dagster is down just as well

Two groups, one per picture: `loop` is the way of an answer to a better policy, `ledger` is what an
auditor reads.
"""

from __future__ import annotations

import json

import dagster as dg

from afterbay.schemas.codec import newest
from afterbay.schemas.topics import ARCHIVE_TABLE, CURSOR_TOPIC, EXPERIENCE_TABLE, TOPICS, Topic

LOOP, LEDGER = "loop", "ledger"
_DAY_MS = 86_400_000
_LOOP_TOPICS = frozenset(
    {
        "inference.completed.v2",
        "feedback.received.v2",
        "reward.assigned.v2",
        "policy.snapshot.v2",
        "policy.loaded.v2",
    }
)
_FED_BY = {
    # the rewarder folds feedback, and gives a default to answers without any
    "reward.assigned.v2": ("table:feedback", "table:inference"),
    # publication and promotion are assets of this code location; nodes answer to what they tell
    "policy.snapshot.v2": ("policy_publication", "policy_promotion"),
    "policy.loaded.v2": ("topic:policy.snapshot.v2",),
    "experience.dropped.v2": ("policy_snapshot",),
}


def topic_key(name: str) -> dg.AssetKey:
    """Asset key of a topic."""
    return dg.AssetKey(["topic", name.replace(".", "_")])


def table_key(name: str) -> dg.AssetKey:
    """Asset key of a table."""
    return dg.AssetKey(["table", name])


EXPERIENCE = table_key(EXPERIENCE_TABLE)
ARCHIVE = table_key(ARCHIVE_TABLE)


def external_assets() -> list[dg.AssetSpec]:
    """Every topic and every stream-written table."""
    topics = [_topic(facts) for facts in TOPICS.values()]
    tables = [_table(facts) for facts in TOPICS.values() if facts.table is not None]
    return [*topics, *tables, _experience(), _archive()]


def _topic(facts: Topic) -> dg.AssetSpec:
    kept = "for ever" if facts.retention_ms < 0 else f"{facts.retention_ms // _DAY_MS} days"
    return dg.AssetSpec(
        topic_key(facts.name),
        group_name=_group(facts.name),
        description=_doc(facts.name),
        kinds={"kafka"},
        deps=[_key(name) for name in _FED_BY.get(facts.name, ())],
        metadata={
            "topic": facts.name,
            "key": facts.key,
            "kept": "newest per key" if facts.compacted else kept,
            "schema": dg.MetadataValue.json(json.loads(newest(facts.name).text)),
        },
    )


def _table(facts: Topic) -> dg.AssetSpec:
    return dg.AssetSpec(
        table_key(facts.table or ""),
        group_name=_group(facts.name),
        description=f"Every event of `{facts.name}`, once, written by the sink. Append only.",
        kinds={"deltalake"},
        deps=[topic_key(facts.name)],
        metadata={"partitioned by": "date", "date of": facts.date_of},
    )


def _experience() -> dg.AssetSpec:
    return dg.AssetSpec(
        EXPERIENCE,
        group_name=LOOP,
        description=(
            "Answers joined with their rewards, by date and reward range, appended by the "
            "bucketer. A corrected reward is one more row: read it as `experience_current`."
        ),
        kinds={"deltalake"},
        deps=[table_key("inference"), table_key("reward")],
        metadata={"partitioned by": "date, reward_range"},
    )


def _archive() -> dg.AssetSpec:
    return dg.AssetSpec(
        ARCHIVE,
        group_name=LEDGER,
        description=(
            "The stored bytes of every event with the offsets that were skipped, written by the "
            "sink. `prove` compares every other table with it, `replay` reads from it."
        ),
        kinds={"deltalake"},
        deps=[topic_key(name) for name in TOPICS if name != CURSOR_TOPIC],
        metadata={"partitioned by": "topic, date of arrival"},
    )


def _key(name: str) -> dg.AssetKey:
    kind, _, rest = name.partition(":")
    makers = {"topic": topic_key, "table": table_key}
    return makers[kind](rest) if rest else dg.AssetKey(kind)


def _group(topic_name: str) -> str:
    return LOOP if topic_name in _LOOP_TOPICS else LEDGER


def _doc(topic_name: str) -> str:
    doc: str = json.loads(newest(topic_name).text)["doc"]
    return doc
