"""Slices: a reproducible selection of experience that one training run reads.

In:   table `experience` and what was dropped and published so far
Out:  `SliceSpec` (JSON, goes into the snapshot's manifest) and its rows, sorted by inference id
Refuses: a spec whose text is no slice (BadState)
Never: depends on a table version; offsets over `inference`, `reward` and `drop` say what is in it

A slice made again later holds the same rows: newer rewards, newer drops and newer inferences all
lie past its offsets. Held-out sessions are in it, marked; no trainer may train on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256

import msgspec
import polars as pl
import pyarrow as pa

from afterbay.lakehouse import tables
from afterbay.lakehouse.commits import TxnLog
from afterbay.lakehouse.experience import RANK_COLUMNS, newest_rows
from afterbay.lakehouse.lake import Lake
from afterbay.lakehouse.positions import Positions, SourcePartition, parse_txn_id
from afterbay.schemas.clock import from_micros, micros
from afterbay.schemas.errors import BadState
from afterbay.schemas.topics import EXPERIENCE_TABLE

HELD_OUT_OF = 10
"""One session in so many is held out."""
_NARROW = (
    "inference_id",
    "policy",
    "completed_at",
    "function_id",
    "edges_id",
    "reward_event_id",
    "generation",
    "feedback_count",
    *(f"{side}_{name}" for side in ("inference", "reward") for name in tables.EXPERIENCE_PLACES),
)


class Place(msgspec.Struct, frozen=True):
    """Next offset of one input partition. Part of a spec."""

    topic: str
    topic_id: str
    partition: int
    next_offset: int


class SliceSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What one training run reads. Made by `plan`, read by trainers, kept in manifests."""

    policy: str
    since_us: int
    """Oldest completion time, microseconds since the epoch."""
    until_us: int
    """Completion times lie before this."""
    places: tuple[Place, ...]
    """Rows whose inference, reward or drop lies at or past these are not in the slice."""
    function_id: str
    """Reward function whose rewards are read."""
    edges_id: str
    tokenizer: str
    """Fingerprint of the newest snapshot's tokenizer; rows of another one cannot be trained on."""
    published: tuple[str, ...]
    """The newest snapshots published when it was planned, oldest first; lag counts in this list."""
    max_lag: int
    """Experience with a greater lag is stale."""
    max_age_s: float
    """Experience completed longer before `until_us` is expired."""
    seed: int
    rows: int
    """Rows of the slice, held-out ones included."""
    digest: str
    """SHA-256 over the sorted (inference id, reward event id) pairs."""

    @property
    def positions(self) -> dict[SourcePartition, int]:
        """`places` as positions."""
        return {
            SourcePartition(p.topic, p.topic_id, p.partition): p.next_offset for p in self.places
        }

    def to_json(self) -> str:
        """Canonical text, as it goes into a manifest."""
        return msgspec.json.encode(self, order="sorted").decode()


def from_json(text: str | bytes) -> SliceSpec:
    """The spec in `text`; BadState if it is none."""
    try:
        return msgspec.json.decode(text, type=SliceSpec)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise BadState(
            f"slice spec of {len(text)} characters: {type(error).__name__}; expected the JSON "
            "that `slices.plan` made"
        ) from None


@dataclass(frozen=True, slots=True)
class NewExperience:
    """How much experience lies past a sensor's cursor. Made by `count_new`."""

    rows: int
    positions: dict[SourcePartition, int]
    """Next reward offsets, the cursor after these rows."""


def plan(
    lake: Lake,
    *,
    policy: str,
    since: datetime,
    until: datetime,
    function_id: str,
    edges_id: str,
    max_lag: int,
    max_age: timedelta,
    seed: int,
) -> SliceSpec:
    """The slice of everything that is in the tables now, within [since, until).

    Rows of another tokenizer, stale and expired ones are in it: a trainer drops them by events.
    """
    positions = {
        **_positions(lake, EXPERIENCE_TABLE, "bucketer"),
        **_positions(lake, "drop", "sink"),
    }
    places = tuple(Place(p.topic, p.topic_id, p.partition, v) for p, v in sorted(positions.items()))
    published = _published(lake, policy)
    spec = SliceSpec(
        policy=policy,
        since_us=micros(since),
        until_us=micros(until),
        places=places,
        function_id=function_id,
        edges_id=edges_id,
        tokenizer=_tokenizer(published["manifest"].last() if published.height else ""),
        published=tuple(published["snapshot_id"].to_list()[-(max_lag + 1) :]),
        max_lag=max_lag,
        max_age_s=max_age.total_seconds(),
        seed=seed,
        rows=0,
        digest="",
    )
    chosen = _choose(lake, spec)
    return msgspec.structs.replace(spec, rows=chosen.height, digest=_digest(chosen))


def read(lake: Lake, spec: SliceSpec) -> pa.Table:
    """Rows of `spec`, sorted by inference id; `experience` columns, and three more.

    `held_out` (bool), `lag` (int, snapshots published since; `max_lag + 1` if older than the spec
    knows) and `age_s` (seconds before the end of the window). Stale and expired rows are among
    them: the trainer drops them, with an event each. BadState if the rows are not the spec's.
    """
    chosen = _choose(lake, spec)
    if _digest(chosen) != spec.digest:
        raise BadState(
            f"slice of {spec.rows} rows: the experience table gives {chosen.height} rows with "
            "another digest; rebuild `experience` from inference and reward, then read again"
        )
    keys = chosen.select("reward_event_id").lazy()
    wide = _scan(lake, EXPERIENCE_TABLE, _days(spec)).join(keys, on="reward_event_id", how="semi")
    rows = wide.unique("reward_event_id", keep="any").sort("inference_id").collect()
    return _with_marks(rows, spec).to_arrow()


def count_new(lake: Lake, after: Positions, since: datetime) -> NewExperience:
    """Experience rows whose reward lies at or past `after`, of answers completed from `since` on.

    A partition that `after` does not name counts whole.
    """
    ends = _positions(lake, EXPERIENCE_TABLE, "bucketer")
    rewards = {p: v for p, v in ends.items() if p.topic.startswith("reward.")}
    if all(after.get(p, 0) >= v for p, v in rewards.items()):
        return NewExperience(0, rewards)
    start = _frame({p: after.get(p, 0) for p in rewards}, "reward")
    recent = _scan(lake, EXPERIENCE_TABLE, None).filter(pl.col("completed_at") >= since)
    narrow = recent.select("reward_topic_id", "reward_partition", "reward_offset")
    joined = narrow.join(start.lazy(), on=["reward_topic_id", "reward_partition"])
    past = joined.filter(pl.col("reward_offset") >= pl.col("reward_end")).select(pl.len()).collect()
    return NewExperience(int(past.item()), rewards)


def held_out(session_ids: Sequence[str]) -> list[bool]:
    """Whether each session is held out: a hash of the id alone, the same on every machine."""
    return [int.from_bytes(sha256(s.encode()).digest()[:8]) % HELD_OUT_OF == 0 for s in session_ids]


def _choose(lake: Lake, spec: SliceSpec) -> pl.DataFrame:
    """Keys of the slice's rows: the newest reward of each inference below the spec's offsets."""
    rows = (
        _scan(lake, EXPERIENCE_TABLE, _days(spec))
        .select(_NARROW)
        .filter(
            pl.col("policy") == spec.policy,
            pl.col("function_id") == spec.function_id,
            pl.col("edges_id") == spec.edges_id,
            pl.col("completed_at") >= from_micros(spec.since_us),
            pl.col("completed_at") < from_micros(spec.until_us),
        )
    )
    for side in ("inference", "reward"):
        rows = _below(rows, spec.positions, side)
    ranked = rows.collect()
    rows_kept = newest_rows(ranked.select(RANK_COLUMNS).to_arrow()).to_pylist()
    newest: pl.DataFrame = ranked[rows_kept]
    dropped = _dropped(lake, spec).collect()
    return newest.join(dropped, on="inference_id", how="anti", maintain_order="left")


def _dropped(lake: Lake, spec: SliceSpec) -> pl.LazyFrame:
    rows = _scan(lake, "drop", _days(spec)).select(
        "inference_id",
        pl.col("_topic_id").alias("drop_topic_id"),
        pl.col("_partition").alias("drop_partition"),
        pl.col("_offset").alias("drop_offset"),
    )
    return _below(rows, spec.positions, "drop").select("inference_id")


def _below(rows: pl.LazyFrame, positions: Positions, side: str) -> pl.LazyFrame:
    keys = [f"{side}_topic_id", f"{side}_partition"]
    joined = rows.join(_frame(positions, side).lazy(), on=keys)
    return joined.filter(pl.col(f"{side}_offset") < pl.col(f"{side}_end")).drop(f"{side}_end")


def _frame(positions: Positions, side: str) -> pl.DataFrame:
    return pl.DataFrame(
        [(p.topic_id, p.partition, offset) for p, offset in positions.items()],
        schema={
            f"{side}_topic_id": pl.String,
            f"{side}_partition": pl.Int32,
            f"{side}_end": pl.Int64,
        },
        orient="row",
    )


def _with_marks(rows: pl.DataFrame, spec: SliceSpec) -> pl.DataFrame:
    back = {name: lag for lag, name in enumerate(reversed(spec.published))}
    sessions = rows.select(pl.col("session_id").unique())
    marks = sessions.with_columns(
        pl.Series("held_out", held_out(sessions["session_id"].to_list()), dtype=pl.Boolean)
    )
    age_us = spec.until_us - pl.col("completed_at").dt.epoch("us")
    oldest = (
        pl.col("segments")
        .list.eval(
            pl.element()
            .struct.field("snapshot_id")
            .replace_strict(back, default=spec.max_lag + 1, return_dtype=pl.Int64)
        )
        .list.max()
    )
    alone = pl.col("snapshot_id").replace_strict(
        back, default=spec.max_lag + 1, return_dtype=pl.Int64
    )
    return rows.join(marks, on="session_id", how="left", maintain_order="left").with_columns(
        pl.coalesce(oldest, alone).alias("lag"), (age_us / 1e6).alias("age_s")
    )


def _digest(chosen: pl.DataFrame) -> str:
    pairs = chosen.select(pl.concat_str("inference_id", "reward_event_id", separator=" "))
    return sha256("\n".join(pairs.to_series().to_list()).encode()).hexdigest()


def _days(spec: SliceSpec) -> tuple[str, str]:
    # ids are minted at admission, so the id's date may lie before the completion's
    first = from_micros(spec.since_us) - timedelta(days=1)
    return first.strftime("%Y-%m-%d"), from_micros(spec.until_us).strftime("%Y-%m-%d")


def _scan(lake: Lake, table: str, days: tuple[str, str] | None) -> pl.LazyFrame:
    rows = pl.scan_delta(tables.open(lake, table))
    if days is None:
        return rows
    first, last = days
    return rows.filter(pl.col("date").is_between(pl.lit(first), pl.lit(last)))


def _positions(lake: Lake, table: str, pipeline: str) -> dict[SourcePartition, int]:
    txns = TxnLog(lake, table).advance(tables.open(lake, table).version())
    places = {parse_txn_id(app_id, pipeline): version for app_id, version in txns.items()}
    return {place: version for place, version in places.items() if place is not None}


def _published(lake: Lake, policy: str) -> pl.DataFrame:
    """Snapshots of `policy` in the order they were published (one key, so one partition)."""
    rows = _scan(lake, "policy", None).filter(
        pl.col("policy") == policy, pl.col("action") == "published"
    )
    return rows.sort("_offset").select("snapshot_id", "manifest").collect()


class _Manifest(msgspec.Struct, frozen=True):
    tokenizer: str = ""


def _tokenizer(manifest: object) -> str:
    """The fingerprint that a manifest names; empty if it names none."""
    try:
        return msgspec.json.decode(str(manifest), type=_Manifest).tokenizer
    except (msgspec.DecodeError, msgspec.ValidationError):
        return ""
