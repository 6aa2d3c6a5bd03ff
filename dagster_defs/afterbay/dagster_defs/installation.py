"""One installation as runs and sensors see it: its tables, its log, its snapshots, its settings.

In:   Settings; the tables `policy` and `experience`
Out:  `Installation`, the one resource of this code location: arm state, rewards by arm, paths
Refuses: what tables and snapshots refuse, with their errors
Never: writes a table, or imports torch or platform
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import polars as pl
import pyarrow.dataset as ds

from afterbay.dagster_defs.settings import Settings
from afterbay.lakehouse import experience, tables
from afterbay.lakehouse.lake import Lake
from afterbay.schemas import ids
from afterbay.schemas.clock import Clock, SystemClock
from afterbay.schemas.errors import BadState
from afterbay.schemas.events import PolicySnapshot
from afterbay.streams.arms import CANDIDATE, CURRENT, ArmState, Snapshot, fold_arms
from afterbay.streams.kafka import KafkaAddress
from afterbay.streams.signing import Ed25519Verifier
from afterbay.streams.snapshots import Manifest, folder_of, verify_snapshot

POLICY_TABLE = "policy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """Where one training keeps its papers, so that any of its steps can be run again."""

    training_id: str
    """Id of the run that began it; a re-execution keeps it."""
    folder: Path

    @property
    def plan(self) -> Path:
        """What is trained: snapshot id, parent."""
        return self.folder / "plan.json"

    @property
    def slice(self) -> Path:
        """The slice that is trained on, as JSON."""
        return self.folder / "slice.json"

    @property
    def evaluation(self) -> Path:
        """What the off-policy evaluation said, as JSON."""
        return self.folder / "evaluation.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Canary:
    """A canary under way, and the rewards of its arms so far. Read by sensor and promotion."""

    event_id: str
    """The event that began it."""
    candidate: Snapshot
    began: datetime
    candidate_rewards: tuple[float, ...]
    """Newest reward of each answer the candidate gave since."""
    current_rewards: tuple[float, ...]
    """Likewise of the current snapshot, over the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """What every asset, check and sensor works on."""

    settings: Settings
    clock: Clock

    @property
    def lake(self) -> Lake:
        """The tables."""
        return Lake(str(self.settings.home / "lake"))

    @property
    def address(self) -> KafkaAddress:
        """The event log."""
        return KafkaAddress(self.settings.bootstrap, self.settings.prefix)

    def training(self, training_id: str) -> Training:
        """The papers of one training."""
        return Training(
            training_id=training_id, folder=self.settings.home / "training" / training_id
        )

    def new_snapshot(self, snapshot_id: str) -> Path:
        """Folder that a new snapshot is written to."""
        return self.settings.home / "snapshots" / snapshot_id

    def folder(self, snapshot: Snapshot) -> Path:
        """Folder of a snapshot that events told of."""
        return folder_of(snapshot.uri, self.settings.home)

    def verified(self, folder: Path, snapshot_id: str) -> Manifest:
        """The manifest of a snapshot, every byte of it checked; BadSnapshot else."""
        verifier = Ed25519Verifier.load(self.settings.home / "keys")
        return verify_snapshot(folder, verifier, snapshot_id=snapshot_id)

    def arms(self) -> ArmState:
        """Where the policy stands by table `policy`: some seconds behind the log, and cheap."""
        rows = (
            pl.scan_delta(tables.open(self.lake, POLICY_TABLE))
            .filter(pl.col("policy") == self.settings.policy)
            .sort("_offset")  # one key, so one partition: offsets are the order
            .select(
                *("event_id", "policy", "action", "snapshot_id", "parent"),
                *("digest", "uri", "manifest", "signature", "split"),
            )
            .collect()
        )
        return fold_arms(PolicySnapshot(**row) for row in rows.iter_rows(named=True))

    def canary(self, arms: ArmState) -> Canary | None:
        """The canary under way in `arms`, with its rewards; None if there is none."""
        if arms.candidate is None or arms.current is None or arms.canary_event_id is None:
            return None
        began = ids.minted_at(arms.canary_event_id)
        if began is None:
            raise BadState(
                f"snapshot {arms.candidate.snapshot_id}: the event of its canary has no time in "
                "its id; roll the candidate back by hand"
            )
        return Canary(
            event_id=arms.canary_event_id,
            candidate=arms.candidate,
            began=began,
            candidate_rewards=self._rewards(CANDIDATE, arms.candidate, began),
            current_rewards=self._rewards(CURRENT, arms.current, began),
        )

    def sessions(self, since: datetime) -> list[str]:
        """Session of every rewarded answer completed since then; one entry an answer."""
        found: list[str] = self._current("session_id", self._since(since))
        return found

    def _rewards(self, arm: str, snapshot: Snapshot, since: datetime) -> tuple[float, ...]:
        """Newest reward of every answer of one arm that was completed since then."""
        of_arm = (ds.field("arm") == arm) & (ds.field("snapshot_id") == snapshot.snapshot_id)
        return tuple(self._current("reward", self._since(since) & of_arm))

    def _since(self, since: datetime) -> ds.Expression:
        """Answers of the policy that were completed since then."""
        day_before = since - timedelta(days=1)  # an id's date is that of its admission
        return (
            (ds.field("date") >= day_before.strftime("%Y-%m-%d"))
            & (ds.field("policy") == self.settings.policy)
            & (ds.field("completed_at") >= since)
        )

    def _current(self, column: str, where: ds.Expression) -> list[Any]:
        found: list[Any] = (
            experience.current(self.lake, [column], where=where).column(column).to_pylist()
        )
        return found


@dg.resource(description="Tables, log, snapshots and settings of this installation.")
def installation(_context: dg.InitResourceContext) -> Installation:
    """The installation that this process's environment names."""
    return from_env(os.environ)


def from_env(environ: Mapping[str, Any]) -> Installation:
    """The installation that `environ` names."""
    return Installation(settings=Settings.from_env(environ), clock=SystemClock())
