"""An installation without a broker: a small real lake, a clock, and what sensors look at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from afterbay.dagster_defs.installation import Installation
from afterbay.dagster_defs.settings import Settings
from afterbay.dsa.rewards import Edges, SourceMean
from afterbay.lakehouse import tables
from afterbay.lakehouse.ledger import TableLedger
from afterbay.lakehouse.positions import SourcePartition
from afterbay.schemas import ids
from tests.support.lakes import Log, row
from tests.support.manual_clock import ManualClock

INFERENCE = SourcePartition("inference.completed.v2", "inf", 0)
REWARD = SourcePartition("reward.assigned.v2", "rew", 0)


@dataclass
class SmallLoop:
    """Stands in for sink and bucketer of one installation."""

    installation: Installation
    clock: ManualClock
    log: Log
    rewards: int = 0
    """Next reward offset."""
    told: list[str] = field(default_factory=list)
    """Event ids of snapshot events, in order."""

    @classmethod
    def at(cls, home: Path, **settings: Any) -> SmallLoop:
        """A new one in an empty folder."""
        clock = ManualClock()
        made = Installation(settings=Settings(home=home, **settings), clock=clock)
        tables.ensure(made.lake)
        return cls(made, clock, Log(made.lake, "policy.snapshot.v2", "policy"))

    def tell(self, *story: str) -> None:
        """Events such as `promoted a`, at the clock's time."""
        for step in story:
            action, snapshot = step.split()
            self.told.append(ids.new_id(self.clock.now()))
            self.log.put(
                {
                    "event_id": self.told[-1],
                    "policy": "bank-agent",
                    "action": action,
                    "snapshot_id": snapshot,
                    "digest": snapshot * 4,
                    "uri": f"snapshots/{snapshot}",
                    "split": 0.5,
                }
            )

    def rewarded(
        self, rewards: Sequence[float], *, arm: str = "current", snapshot: str = "a"
    ) -> list[str]:
        """Answers of one arm, completed now, each with its reward and a session of its own."""
        answers = [ids.new_id(self.clock.now()) for _ in rewards]
        self.correct(answers, rewards, arm=arm, snapshot=snapshot, feedback_count=1)
        return answers

    def correct(
        self,
        answers: Sequence[str],
        rewards: Sequence[float],
        *,
        arm: str = "current",
        snapshot: str = "a",
        feedback_count: int = 2,
        completed_at: datetime | None = None,
    ) -> None:
        """One more reward for each of these answers."""
        start = self.rewards
        shared = {
            "policy": "bank-agent",
            "arm": arm,
            "snapshot_id": snapshot,
            "function_id": SourceMean().function_id,
            "edges_id": Edges().edges_id,
            "feedback_count": feedback_count,
            "completed_at": completed_at or self.clock.now(),
            "date": f"{self.clock.now() - timedelta(0):%Y-%m-%d}",
            "inference_topic_id": "inf",
            "reward_topic_id": "rew",
        }
        rows = [
            row(
                "experience",
                **shared,
                inference_id=answer,
                session_id=answer,
                reward=reward,
                reward_event_id=ids.new_id(self.clock.now()),
                inference_offset=start + n,
                reward_offset=start + n,
                reward_range=str(Edges().range_of(_one(reward))[0]),
            )
            for n, (answer, reward) in enumerate(zip(answers, rewards, strict=True))
        ]
        self.rewards += len(rows)
        data = pa.Table.from_pylist(rows, tables.arrow_schema("experience"))
        TableLedger(self.installation.lake, "experience", "bucketer").append(
            data,
            {INFERENCE: start, REWARD: start},
            {INFERENCE: self.rewards, REWARD: self.rewards},
        )


def _one(reward: float) -> Any:
    return pa.array([reward]).to_numpy()
