"""Which inferences waited long enough for feedback: the default sweep, in offset order.

In:   table `inference` after the sweep's positions; how far table `feedback` has come
Out:  `Due`: inference ids that get the default unless they have feedback, and the positions after
Never: looks past an inference that still has time, so positions alone say what was swept

An inference is due once every feedback partition's watermark passed its completion + wait. A
partition's watermark is its newest `_ts`, or the time at which the table had reached the end
offset the broker gave then, so that an idle partition blocks nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

import polars as pl
import pyarrow as pa

from afterbay.lakehouse.lake import Lake
from afterbay.lakehouse.positions import Positions, SourcePartition, further
from afterbay.lakehouse.watermarks import OffsetReader
from afterbay.schemas.clock import EPOCH, Clock

FEEDBACK = "feedback.received.v2"

_COLUMNS = ("event_id", "completed_at", "_topic", "_topic_id", "_partition", "_offset", "_ts")
_PLACE = ["_topic", "_topic_id", "_partition"]


@dataclass(frozen=True, slots=True)
class Due:
    """Inferences whose wait is over. Made by the sweep, read by the rewarder."""

    inference_ids: pa.Array
    """Ids in no particular order."""
    positions: dict[SourcePartition, int]
    """Next inference offsets to sweep once these are dealt with."""


class DefaultSweep:
    """Keeps inferences that wait for feedback in memory, narrow; positions say where it stands."""

    def __init__(
        self,
        lake: Lake,
        end_offsets: Callable[[], Positions],
        clock: Clock,
        wait: timedelta,
    ) -> None:
        self._reader = OffsetReader(lake, "inference", "sink", _COLUMNS)
        self._end_offsets = end_offsets
        self._clock = clock
        self._wait = wait
        self._read: dict[SourcePartition, int] = {}
        self._waiting: pl.DataFrame | None = None
        self._newest: dict[SourcePartition, datetime] = {}
        self.positions: dict[SourcePartition, int] = {}
        """Next inference offset to sweep, by partition."""

    def resume(self, positions: dict[SourcePartition, int]) -> None:
        """Stand at `positions`, from a start or an unknown outcome; what waits is read anew."""
        self.positions, self._read = dict(positions), dict(positions)
        self._waiting = None

    def advance(self, due: Due) -> None:
        """Stand past `due`, whose inferences were dealt with."""
        self.positions = dict(due.positions)
        if self._waiting is not None:
            done = pl.DataFrame({"event_id": due.inference_ids})
            self._waiting = self._waiting.join(done, on="event_id", how="anti")

    def observe(self, new: pa.Table, positions: Positions) -> None:
        """Note that feedback up to `positions`, `new` rows among it, was rewarded."""
        rows = pl.DataFrame(pl.from_arrow(new))
        for topic, topic_id, partition, newest in (
            rows.group_by(_PLACE).agg(pl.col("_ts").max()).iter_rows()
        ):
            self._newest[SourcePartition(topic, topic_id, partition)] = newest
        # the time first: what was appended before it lies below the end offsets asked for after it
        asked_at, ends = self._clock.now(), self._end_offsets()
        for place, end in ends.items():
            if place.topic == FEEDBACK:
                reached = positions.get(place, 0) >= end
                self._newest[place] = asked_at if reached else self._newest.get(place, EPOCH)

    def due(self, limit: int) -> Due | None:
        """The next inferences whose wait is over, at most `limit`; None if there are none.

        The same ones again until `advance`: what failed to be produced is still due.
        """
        if not self._newest:
            return None
        self._take_new()
        over = self._over(min(self._newest.values()) - self._wait).head(limit)
        if over.is_empty() or self._waiting is None:
            return None
        ends = over.group_by(_PLACE).agg(pl.col("_offset").max() + 1)
        moved = {SourcePartition(t, i, p): offset for t, i, p, offset in ends.iter_rows()}
        return Due(over["event_id"].to_arrow(), {**self.positions, **moved})

    def _take_new(self) -> None:
        batch = self._reader.read(self._read)
        rows = pl.DataFrame(pl.from_arrow(batch.rows)).select(_COLUMNS)
        self._read = further(self._read, batch.next)
        kept = rows if self._waiting is None else pl.concat([self._waiting, rows])
        self._waiting = kept.sort([*_PLACE, "_offset"])

    def _over(self, completed_before: datetime) -> pl.DataFrame:
        if self._waiting is None:
            return pl.DataFrame(schema=dict.fromkeys(_COLUMNS, pl.Null))
        # in offset order up to the first that still has time: a later one must not overtake it
        still = (pl.col("completed_at") >= completed_before).cast(pl.Int8).cum_max().over(_PLACE)
        return self._waiting.filter(still == 0)
