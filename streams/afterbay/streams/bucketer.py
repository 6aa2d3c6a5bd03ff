"""Join rewards with their inferences and put the experience where its reward range says.

In:   tables `reward` and `inference`, new rows after the positions, at pinned versions
Out:  rows of table `experience` (date x reward_range), one commit a step, positions as txns
Refuses: nothing; a reward whose inference is not there yet waits for it
Never: holds a position anywhere but in the experience table itself

A step joins (new rewards with all inferences) and (new inferences with older rewards): together
each pair once, whichever side came first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl
import pyarrow as pa

from afterbay.dsa.rewards import Edges
from afterbay.lakehouse import tables
from afterbay.lakehouse.commits import TxnLog
from afterbay.lakehouse.lake import Lake
from afterbay.lakehouse.ledger import TableLedger
from afterbay.lakehouse.lookup import rows_by_id
from afterbay.lakehouse.positions import SourcePartition, parse_txn_id
from afterbay.lakehouse.watermarks import OffsetReader
from afterbay.schemas.topics import EXPERIENCE_TABLE
from afterbay.streams.agent import log_to_stderr, run
from afterbay.streams.rewarder import below, first_rows
from afterbay.streams.settings import StreamSettings

PIPELINE = "bucketer"
_PLACE = ("_topic", "_topic_id", "_partition", "_offset", "_ts")
_INFERENCE_KEYS = ("event_id", *_PLACE)
_REWARD_COLUMNS = ("event_id", "inference_id", *tables.EXPERIENCE_FROM_REWARD, *_PLACE)
_INFERENCE_COLUMNS = ("event_id", "date", *tables.EXPERIENCE_FROM_INFERENCE, *_PLACE)


class Bucketer:
    """Agent that writes experience; one is active, a second fences the first."""

    name = PIPELINE

    def __init__(self, *, lake: Lake, edges: Edges | None = None, batch_rows: int = 20_000) -> None:
        self._lake = lake
        self._edges = edges or Edges()
        self._batch_rows = batch_rows
        self._rewards = OffsetReader(lake, "reward", "sink", _REWARD_COLUMNS)
        self._inferences = OffsetReader(lake, "inference", "sink", _INFERENCE_KEYS)
        self._ledger = TableLedger(lake, EXPERIENCE_TABLE, PIPELINE)
        self._rewards_after: dict[SourcePartition, int] = {}
        self._inferences_after: dict[SourcePartition, int] = {}

    def open(self) -> None:
        """Take up the positions that the experience table holds."""
        handle = tables.open(self._lake, EXPERIENCE_TABLE)
        txns = TxnLog(self._lake, EXPERIENCE_TABLE).advance(handle.version())
        places = {parse_txn_id(name, PIPELINE): version for name, version in txns.items()}
        known = {place: version for place, version in places.items() if place is not None}
        self._rewards_after = {p: v for p, v in known.items() if p.topic.startswith("reward.")}
        self._inferences_after = {p: v for p, v in known.items() if p not in self._rewards_after}

    def step(self) -> bool:
        """Write the experience that new rewards and new inferences make; True if there was any."""
        # rewards first: a pair whose reward is older than this read is found from its inference
        rewards = self._rewards.read(self._rewards_after)
        inferences = self._inferences.read(self._inferences_after)
        new_rewards, rewards_after = first_rows(rewards, self._rewards_after, self._batch_rows)
        new_keys, inferences_after = first_rows(
            inferences, self._inferences_after, self._batch_rows
        )
        moved = {**rewards_after, **inferences_after}
        expected = {**self._rewards_after, **self._inferences_after}
        if moved == expected:
            return False
        older = self._older_rewards(new_keys, rewards.version)
        rows = self._join(pa.concat_tables([new_rewards, older]), inferences.version, moved)
        self._ledger.append(rows, {p: expected.get(p, 0) for p in moved}, moved)
        self._rewards_after, self._inferences_after = rewards_after, inferences_after
        read: int = new_rewards.num_rows + new_keys.num_rows
        return read > 0

    def drain(self) -> None:
        """Join what is in the tables now."""
        while self.step():
            pass

    def close(self) -> None:
        """Nothing is held."""

    def _older_rewards(self, new_keys: pa.Table, version: int) -> pa.Table:
        keys = new_keys.column("event_id")
        rewards = rows_by_id(self._lake, "reward", keys, _REWARD_COLUMNS, version)
        return below(rewards, self._rewards_after).select(list(_REWARD_COLUMNS))

    def _join(
        self, rewards: pa.Table, version: int, upto: dict[SourcePartition, int]
    ) -> pa.Table | None:
        ids = rewards.column("inference_id")
        wide = rows_by_id(self._lake, "inference", ids, _INFERENCE_COLUMNS, version)
        # an inference past the positions of this step is new in the next one, and joined there
        wide = below(wide, upto)
        pairs = pl.DataFrame(pl.from_arrow(_as_side(wide, "inference", "inference_id"))).join(
            pl.DataFrame(pl.from_arrow(_as_side(rewards, "reward", "reward_event_id"))),
            on="inference_id",
        )
        once = pairs.sort("inference_offset").unique(
            "reward_event_id", keep="first", maintain_order=True
        )
        return None if once.is_empty() else self._shaped(once)

    def _shaped(self, pairs: pl.DataFrame) -> pa.Table:
        labels = self._edges.range_of(pairs["reward"].to_numpy())
        frame = pairs.with_columns(
            pl.lit(self._edges.edges_id).alias("edges_id"),
            pl.Series(tables.RANGE_COLUMN, labels.tolist(), dtype=pl.String),
        )
        schema = tables.arrow_schema(EXPERIENCE_TABLE)
        return frame.select(schema.names).to_arrow().cast(schema)


def _as_side(rows: pa.Table, side: str, id_name: str) -> pa.Table:
    """Columns of one side of the join under the names that `experience` has for them."""
    names = {"event_id": id_name, **{f"_{n}": f"{side}_{n}" for n in tables.EXPERIENCE_PLACES}}
    kept: Sequence[str] = [n for n in rows.column_names if n not in ("_topic", "_ts")]
    return rows.select(kept).rename_columns([names.get(n, n) for n in kept])


def main(environ: Mapping[str, str]) -> int:
    """Entry point of the agent; its exit code."""
    log_to_stderr()
    settings = StreamSettings.from_env(environ)
    return run(Bucketer(lake=settings.lake), settings.agent(settings.poll_s))
