"""Make rewards of feedback: every opinion about an inference, folded into one number.

In:   table `feedback` (new rows after the cursor), table `inference` (for the default sweep)
Out:  `RewardAssigned` events, in one transaction with the cursor that says what they reflect
Refuses: nothing; feedback without a score is kept but not folded
Never: reads table `reward`; holds a position anywhere but in the outbox's cursor
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import polars as pl
import pyarrow as pa

from afterbay.dsa.rewards import SourceMean
from afterbay.lakehouse.lake import Lake
from afterbay.lakehouse.lookup import rows_by_id
from afterbay.lakehouse.positions import Positions, SourcePartition, further
from afterbay.lakehouse.watermarks import Batch, OffsetReader
from afterbay.schemas import ids
from afterbay.schemas.clock import Clock, SystemClock
from afterbay.schemas.events import Component, Cursor, InputOffset, RewardAssigned
from afterbay.streams.admin import EndOffsets
from afterbay.streams.agent import log_to_stderr, run
from afterbay.streams.outbox import Outbox
from afterbay.streams.settings import StreamSettings
from afterbay.streams.sweep import FEEDBACK, DefaultSweep

SOURCE = "rewarder"
GENERATION = 1
"""Grows when a recompute replaces the rewards of an older function."""
FEEDBACK_COLUMNS = (
    "event_id",
    "inference_id",
    "caller",
    "idempotency_key",
    "source",
    "score",
    "_topic",
    "_topic_id",
    "_partition",
    "_offset",
    "_ts",
)
_ARRIVED = ("_ts", "_partition", "_offset")


@dataclass(frozen=True, slots=True, kw_only=True)
class RewarderSettings:
    """What the rewarder is told at start. Made by the entry point."""

    reward_wait: timedelta = timedelta(hours=24)
    """How long after its completion an inference without feedback gets the default reward."""
    batch_rows: int = 5_000
    """Most feedback rows, and most default rewards, of one transaction."""


class Rewarder:
    """Agent that turns feedback into rewards; one is active, a second fences the first."""

    name = SOURCE

    def __init__(
        self,
        *,
        lake: Lake,
        outbox: Outbox,
        clock: Clock,
        end_offsets: Callable[[], Positions],
        settings: RewarderSettings,
        function: SourceMean | None = None,
    ) -> None:
        self._lake = lake
        self._outbox = outbox
        self._clock = clock
        self._settings = settings
        self._function = function or SourceMean()
        self._feedback = OffsetReader(lake, "feedback", "sink", FEEDBACK_COLUMNS)
        self._sweep = DefaultSweep(lake, end_offsets, clock, settings.reward_wait)
        self._after: dict[SourcePartition, int] = {}

    def open(self) -> None:
        """Fence any predecessor and take up its cursor."""
        cursor = self._outbox.open()
        places = {} if cursor is None else offsets_of(cursor)
        self._sweep.resume({p: o for p, o in places.items() if p.topic.startswith("inference.")})
        self._after = {p: o for p, o in places.items() if p.topic.startswith("feedback.")}

    def step(self) -> bool:
        """Reward what new feedback touches, then what waited long enough; True if there was any."""
        batch = self._feedback.read(self._after)
        new, after = first_rows(batch, self._after, self._settings.batch_rows)
        if after != self._after:
            rewards = self._rewards(new, after, batch.version)
            self._commit(rewards, after, self._sweep.positions)
        self._sweep.observe(new, after)
        due = self._sweep.due(self._settings.batch_rows)
        if due is not None:
            unrated = self._without_feedback(due.inference_ids, batch.version)
            self._commit(self._defaults(unrated), self._after, due.positions)
            self._sweep.advance(due)
        return new.num_rows > 0 or due is not None

    def drain(self) -> None:
        """Reward what is in the tables now."""
        while self.step():
            pass

    def close(self) -> None:
        """Let go of the producer."""
        self._outbox.close()

    def _commit(
        self,
        rewards: Sequence[RewardAssigned],
        feedback: dict[SourcePartition, int],
        swept: Positions,
    ) -> None:
        places = sorted({**feedback, **swept}.items())
        offsets = tuple(
            InputOffset(
                topic=p.topic, topic_id=p.topic_id, partition=p.partition, next_offset=offset
            )
            for p, offset in places
        )
        self._outbox.commit(rewards, Cursor(source=SOURCE, offsets=offsets))
        self._after = feedback

    def _rewards(self, new: pa.Table, upto: Positions, version: int) -> list[RewardAssigned]:
        touched = new.column("inference_id")
        rows = rows_by_id(self._lake, "feedback", touched, FEEDBACK_COLUMNS, version)
        opinions = distinct_opinions(below(rows, upto), self._function.sources)
        return list(self._fold(opinions))

    def _fold(self, opinions: pl.DataFrame) -> Iterator[RewardAssigned]:
        if opinions.is_empty():
            return
        folded = self._function.fold(
            opinions["group"].to_numpy(), opinions["voice"].to_numpy(), opinions["score"].to_numpy()
        )
        groups = opinions.group_by("group", maintain_order=True).agg(
            pl.col("inference_id").first(), "event_id"
        )
        now = self._clock.now()
        for index, inference_id, events in groups.sort("group").iter_rows():
            yield RewardAssigned(
                event_id=ids.new_id(now),
                inference_id=inference_id,
                reward=float(folded.rewards[index]),
                components=tuple(
                    Component(name=name, value=float(value), weight=float(share))
                    for name, value, share in zip(
                        self._function.sources,
                        folded.values[index],
                        folded.shares[index],
                        strict=True,
                    )
                    if share > 0
                ),
                function_id=self._function.function_id,
                generation=GENERATION,
                feedback_count=int(folded.counts[index]),
                feedback_ids=tuple(events),
                cause=self._cause(inference_id, events),
            )

    def _cause(self, inference_id: str, events: Sequence[str]) -> str:
        newest, born = ids.minted_at(max(events)), ids.minted_at(inference_id)
        late = newest is not None and born is not None and newest - born > self._wait
        return "late" if late else "feedback"

    @property
    def _wait(self) -> timedelta:
        return self._settings.reward_wait

    def _without_feedback(self, inferences: pa.Array, version: int) -> list[str]:
        rows = rows_by_id(self._lake, "feedback", inferences, FEEDBACK_COLUMNS, version)
        # the very opinions a reward is made of: one that counts for nothing spares no default
        opinions = distinct_opinions(below(rows, self._after), self._function.sources)
        rated = set(opinions["inference_id"])
        return [text for text in inferences.to_pylist() if text not in rated]

    def _defaults(self, inferences: Sequence[str]) -> list[RewardAssigned]:
        now = self._clock.now()
        return [self._default(inference_id, now) for inference_id in inferences]

    def _default(self, inference_id: str, now: datetime) -> RewardAssigned:
        return RewardAssigned(
            event_id=ids.new_id(now),
            inference_id=inference_id,
            reward=self._function.default,
            components=(Component(name="default", value=self._function.default, weight=1.0),),
            function_id=self._function.function_id,
            generation=GENERATION,
            feedback_count=0,
            cause="default",
        )


def offsets_of(cursor: Cursor) -> dict[SourcePartition, int]:
    """Input positions that a committed cursor names."""
    return {
        SourcePartition(o.topic, o.topic_id, o.partition): o.next_offset for o in cursor.offsets
    }


def first_rows(
    batch: Batch, after: Positions, limit: int
) -> tuple[pa.Table, dict[SourcePartition, int]]:
    """At most `limit` rows of a batch in order of arrival, and the positions past just these."""
    rows = pl.DataFrame(pl.from_arrow(batch.rows))
    if rows.height <= limit:
        return batch.rows, further(after, batch.next)
    taken = rows.sort(_ARRIVED).head(limit)
    ends = taken.group_by("_topic", "_topic_id", "_partition").agg(pl.col("_offset").max() + 1)
    moved = {SourcePartition(t, i, p): offset for t, i, p, offset in ends.iter_rows()}
    return taken.to_arrow().cast(batch.rows.schema), {**after, **moved}


def below(rows: pa.Table, positions: Positions) -> pa.Table:
    """Rows that lie before `positions` in their partition; a partition not named has none."""
    if not positions:
        return rows.slice(0, 0)
    ends = pl.DataFrame(
        [(p.topic_id, p.partition, offset) for p, offset in positions.items()],
        schema={"_topic_id": pl.String, "_partition": pl.Int32, "_end": pl.Int64},
        orient="row",
    )
    joined = pl.DataFrame(pl.from_arrow(rows)).join(ends, on=["_topic_id", "_partition"])
    kept = joined.filter(pl.col("_offset") < pl.col("_end")).drop("_end")
    return kept.to_arrow().cast(rows.schema)


def distinct_opinions(rows: pa.Table, sources: Sequence[str]) -> pl.DataFrame:
    """Scored feedback, each once: lowest offset of an id, and of an inference's (caller, key).

    Columns `group` (0.. in order of inference id), `voice` (index in `sources`), `inference_id`,
    `event_id`, `score`; in offset order within a group. Sources not listed have no voice.
    """
    voices = {name: index for index, name in enumerate(sources)}
    frame = pl.DataFrame(pl.from_arrow(rows)).sort(_ARRIVED)
    frame = frame.unique("event_id", keep="first", maintain_order=True)
    key = pl.coalesce("idempotency_key", "event_id")
    # within its inference: else the batch an opinion happens to be read in would decide about it
    retried = ["inference_id", "caller", key.alias("key")]
    frame = frame.unique(retried, keep="first", maintain_order=True)
    heard = pl.col("score").is_not_null() & pl.col("source").is_in(sources)
    return frame.filter(heard).select(
        (pl.col("inference_id").rank("dense").cast(pl.Int64) - 1).alias("group"),
        pl.col("source").replace_strict(voices, return_dtype=pl.Int64).alias("voice"),
        "inference_id",
        "event_id",
        "score",
    )


def main(environ: Mapping[str, str]) -> int:
    """Entry point of the agent; its exit code."""
    log_to_stderr()
    settings = StreamSettings.from_env(environ)
    clock = SystemClock()
    agent = Rewarder(
        lake=settings.lake,
        outbox=Outbox(SOURCE, settings.address, clock),
        clock=clock,
        end_offsets=EndOffsets(settings.address, [FEEDBACK]),
        settings=RewarderSettings(reward_wait=settings.reward_wait),
    )
    return run(agent, settings.agent(settings.poll_s))
