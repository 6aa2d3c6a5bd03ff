"""What the tables look like: columns from the event schemas, partitions, configuration.

In:   `topics.TABLES` and the `.avsc` files
Out:  `arrow_schema`, `ensure` (makes what is missing), `open` (a checked handle)
Refuses: a table that is missing, whose columns have other types, whose newest commit is torn, or
      that forgets txns (`delta.setTransactionRetentionDuration`), with BadState
"""

from __future__ import annotations

import json
from functools import cache
from types import MappingProxyType
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, PostCommitHookProperties, WriterProperties
from deltalake.exceptions import TableNotFoundError

from afterbay.lakehouse.commits import COMMIT_FILE, LOG, Commit, read_checkpoint, read_commit
from afterbay.lakehouse.durable import sync_commits
from afterbay.lakehouse.lake import Lake
from afterbay.schemas.codec import newest
from afterbay.schemas.errors import BadState, Unavailable
from afterbay.schemas.topics import ARCHIVE_TABLE, EXPERIENCE_TABLE, TABLES

TOPIC_OF = MappingProxyType({table: topic for topic, table in TABLES.items()})
"""Topic of every table that a topic has."""
NAMES = (*TOPIC_OF, EXPERIENCE_TABLE, ARCHIVE_TABLE)
"""Every table."""
RANGE_COLUMN = "reward_range"
NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
"""Checkpoints and clean-up belong to maintenance; in a writer a done commit can look failed."""
WRITER = WriterProperties(compression="ZSTD", compression_level=1)
"""How data files are written, by writers and by compaction."""

_FORGETS = "delta.setTransactionRetentionDuration"
_TIMESTAMP = pa.timestamp("us", "UTC")
_PRIMITIVES = MappingProxyType(
    {
        "string": pa.string(),
        "int": pa.int32(),
        "long": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "boolean": pa.bool_(),
    }
)
_PLACE = (
    pa.field("_topic", pa.string()),
    pa.field("_topic_id", pa.string()),
    pa.field("_partition", pa.int32()),
    pa.field("_offset", pa.int64()),
    pa.field("_ts", _TIMESTAMP),
)
EXPERIENCE_FROM_INFERENCE = (
    "session_id",
    "turn",
    "policy",
    "arm",
    "arm_probability",
    "snapshot_id",
    "digest",
    "tokenizer",
    "tools",
    "prompt_ids",
    "response_ids",
    "response_logprobs",
    "loss_mask",
    "trainable",
    "untrainable_reason",
    "altered",
    "segments",
    "sampling",
    "completed_at",
    "node_id",
)
"""Columns that an experience takes over from its inference, which also gives `inference_id`."""
EXPERIENCE_FROM_REWARD = ("reward", "function_id", "generation", "feedback_count", "cause")
"""Columns that an experience takes over from its reward, which also gives `reward_event_id`."""
EXPERIENCE_PLACES = ("topic_id", "partition", "offset")
"""Taken over from both sides as `inference_<name>` and `reward_<name>`; `_<name>` there."""


def arrow_schema(table: str) -> pa.Schema:
    """Columns of `table`; KeyError naming the known tables if there is no such table."""
    if table == EXPERIENCE_TABLE:
        return _experience_schema()
    if table == ARCHIVE_TABLE:
        return _archive_schema()
    return _event_schema(table)


def partition_columns(table: str) -> tuple[str, ...]:
    """Columns `table` is partitioned by; all are plain labels."""
    special = {EXPERIENCE_TABLE: ("date", RANGE_COLUMN), ARCHIVE_TABLE: ("_topic", "date")}
    return special.get(table, ("date",))


def sort_columns(table: str) -> tuple[str, ...]:
    """Columns the rows of a file are sorted by: the inference's id, wherever a table has one."""
    if table == ARCHIVE_TABLE:
        return ("_topic_id", "_partition", "_offset")
    return ("inference_id",) if "inference_id" in arrow_schema(table).names else ("event_id",)


def ensure(lake: Lake) -> None:
    """Make every table that is missing and add columns that schemas have gained; safe to repeat."""
    for table in NAMES:
        _ensure_one(lake, table)
    for topic in TABLES:
        schema = newest(topic)
        name = f"_schemas/{topic}/{schema.revision}.avsc"
        if lake.read(ARCHIVE_TABLE, name) is None:
            lake.write(ARCHIVE_TABLE, name, schema.text.encode())


def open(lake: Lake, name: str, version: int | None = None) -> DeltaTable:  # noqa: A001 - read as `tables.open`
    """A handle on `name` at its newest (or a given) version, checked as the module says."""
    try:
        table = DeltaTable(lake.uri(name), version=version, storage_options=lake.options)
    except TableNotFoundError:
        if name not in NAMES:
            raise BadState(f"no table is called {name}; there are {', '.join(NAMES)}") from None
        raise BadState(
            f"table {name} is not there; start `afterbay up` once, it makes every table"
        ) from None
    except Exception as error:  # delta-rs raises many kinds
        raise _unreadable(lake, name, error) from error
    read_commit(lake, name, table.version())
    check_configuration(name, table)
    return table


def _unreadable(lake: Lake, name: str, error: Exception) -> Unavailable:
    """What an error of delta-rs means: BadState is raised for a torn log, the one to explain."""
    read_checkpoint(lake, name, newest_commit(lake, name))
    return Unavailable(
        f"table {name} cannot be opened ({type(error).__name__}); check that its store answers"
    )


def refresh(lake: Lake, name: str, table: DeltaTable) -> None:
    """Bring a handle to the newest version; Unavailable if its store does not answer."""
    try:
        table.update_incremental()
    except Exception as error:  # as in `open`
        newest_commit(lake, name)
        raise Unavailable(
            f"table {name}: the log cannot be read ({type(error).__name__}); nothing was written, "
            "try again when its store answers"
        ) from error


def newest_commit(lake: Lake, name: str) -> int:
    """Version of the newest commit file of `name`, -1 if there is none; BadState if it is torn."""
    versions = [int(file[:20]) for file in lake.list(name, LOG) if COMMIT_FILE.fullmatch(file)]
    newest_version = max(versions, default=-1)
    if newest_version >= 0:
        read_commit(lake, name, newest_version)
    return newest_version


def check_configuration(name: str, table: DeltaTable) -> None:
    """BadState if the table's settings let positions vanish."""
    if table.metadata().configuration.get(_FORGETS) is not None:
        raise BadState(
            f"table {name} sets {_FORGETS}, under which the positions of quiet partitions vanish "
            "and their events would be written twice; unset it and start again"
        )


@cache
def _event_schema(table: str) -> pa.Schema:
    topic = TOPIC_OF.get(table)
    if topic is None:
        raise KeyError(f"no table {table!r}; known tables: {', '.join(NAMES)}")
    fields = [pa.field(f["name"], _arrow_type(f["type"])) for f in _avro_fields(topic)]
    return _ordered([*fields, *_PLACE, pa.field("date", pa.string())])


@cache
def _experience_schema() -> pa.Schema:
    inference, reward = _event_schema("inference"), _event_schema("reward")
    places = [
        pa.field(f"{side}_{name}", inference.field(f"_{name}").type)
        for side in ("inference", "reward")
        for name in EXPERIENCE_PLACES
    ]
    return _ordered(
        [
            pa.field("inference_id", pa.string()),
            *(inference.field(name) for name in EXPERIENCE_FROM_INFERENCE),
            pa.field("reward_event_id", pa.string()),
            *(reward.field(name) for name in EXPERIENCE_FROM_REWARD),
            pa.field("edges_id", pa.string()),
            *places,
            pa.field("date", pa.string()),
            pa.field(RANGE_COLUMN, pa.string()),
        ]
    )


def _ordered(fields: list[pa.Field]) -> pa.Schema:
    """Structs last: delta-rs 1.6 hides the statistics of every column that comes after one."""
    return pa.schema(sorted(fields, key=lambda field: pa.types.is_struct(field.type)))


@cache
def _archive_schema() -> pa.Schema:
    header = pa.struct([pa.field("name", pa.string()), pa.field("value", pa.binary())])
    return pa.schema(
        [
            *_PLACE,
            pa.field("_kind", pa.string()),
            pa.field("_event_id", pa.string()),
            pa.field("_fingerprint", pa.binary()),
            pa.field("_gap_before", pa.int64()),
            pa.field("_key", pa.binary()),
            pa.field("_headers", pa.list_(header)),
            pa.field("_bytes", pa.binary()),
            pa.field("_key_sha256", pa.binary()),
            pa.field("_headers_sha256", pa.binary()),
            pa.field("_bytes_sha256", pa.binary()),
            pa.field("_leaf", pa.binary()),
            pa.field("date", pa.string()),
        ]
    )


def _avro_fields(topic: str) -> list[dict[str, Any]]:
    fields: list[dict[str, Any]] = json.loads(newest(topic).text)["fields"]
    return fields


def _arrow_type(avro: Any) -> pa.DataType:
    """Arrow type of an Avro type, for the types that hot schemas keep to."""
    if isinstance(avro, list):
        return _arrow_type(next(kind for kind in avro if kind != "null"))
    if isinstance(avro, str):
        return _PRIMITIVES[avro]
    if avro.get("logicalType") == "timestamp-micros":
        return _TIMESTAMP
    if avro["type"] == "array":
        return pa.list_(_arrow_type(avro["items"]))
    if avro["type"] == "record":
        return pa.struct([pa.field(f["name"], _arrow_type(f["type"])) for f in avro["fields"]])
    return _arrow_type(avro["type"])


def _configuration(table: str) -> dict[str, str | None]:
    names = set(arrow_schema(table).names)
    wanted = ("event_id", "inference_id", "reward_event_id", "_partition", "_offset", "_ts")
    places = ("inference_offset", "reward_offset")
    return {
        # statistics on every column cost more than the rows; these are what readers prune by
        "delta.dataSkippingStatsColumns": ",".join(n for n in (*wanted, *places) if n in names),
        "delta.enableExpiredLogCleanup": "false",
    }


def _ensure_one(lake: Lake, table: str) -> None:
    schema = arrow_schema(table)
    try:
        created = DeltaTable.create(
            lake.uri(table),
            schema,
            mode="ignore",
            partition_by=list(partition_columns(table)),
            configuration=_configuration(table),
            storage_options=lake.options,
            post_commithook_properties=NO_HOOKS,
        )
    except Exception as error:  # as in `open`
        raise _unreadable(lake, table, error) from error
    before = created.version()
    _add_columns(table, created, schema)
    commits = (read_commit(lake, table, v) for v in range(before, created.version() + 1))
    sync_commits(lake, table, [c for c in commits if isinstance(c, Commit)])


def _add_columns(name: str, table: DeltaTable, wanted: pa.Schema) -> None:
    there = {field.name: field for field in table.schema().fields}
    fields = pa.schema(table.schema().to_arrow())
    for field in wanted:
        if field.name in there and not fields.field(field.name).type.equals(field.type):
            raise BadState(
                f"table {name}: column {field.name} is {fields.field(field.name).type}, "
                f"{field.type} expected; schemas only gain columns, so this is another program's "
                "table: use an empty folder"
            )
    missing = pa.schema([field for field in wanted if field.name not in there])
    if len(missing) > 0:
        from_arrow = type(table.schema()).from_arrow(missing)
        table.alter.add_columns(list(from_arrow.fields), post_commithook_properties=NO_HOOKS)
