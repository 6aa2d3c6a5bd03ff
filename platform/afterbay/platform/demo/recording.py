"""What one run of the demo was like: everything summary and report are made from.

In:   what player, judges, queries and Dagster gave
Out:  `Recording`, which is also the file `recording.json`
Never: holds a message or a planted value
"""

from __future__ import annotations

from pathlib import Path

import msgspec

Seconds = float
"""Seconds since the start of the play; negative before it."""


class Span(msgspec.Struct, frozen=True):
    """A stretch of time."""

    start_s: Seconds
    end_s: Seconds


class Answered(msgspec.Struct, frozen=True, array_like=True):
    """One answered message."""

    due_s: Seconds
    latency_ms: float
    """From the time it was due."""


class Training(msgspec.Struct, frozen=True, kw_only=True):
    """One training that made a snapshot."""

    snapshot_id: str
    span: Span
    """From the trainer's start to its end."""
    metrics: dict[str, float]
    """Its figures, by name with unit: kl_per_token_nats, ess, rows, reward_mean …"""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One event of `policy.snapshot.v2`."""

    at_s: Seconds
    snapshot_id: str
    action: str


class RewardPoint(msgspec.Struct, frozen=True, kw_only=True):
    """Rewards of one snapshot's answers in one stretch of time."""

    at_s: Seconds
    """Middle of the stretch, by the time of the answer."""
    snapshot_id: str
    arm: str
    mean: float
    n: int


class RangePoint(msgspec.Struct, frozen=True, kw_only=True):
    """Experiences of one reward range in one stretch of time."""

    at_s: Seconds
    reward_range: str
    n: int


class Count(msgspec.Struct, frozen=True):
    """Events of one topic."""

    sent: int
    """Accepted by HTTP (inference, feedback), else the archive's count."""
    found: int
    """Of those, in the topic's table."""


class Heard(msgspec.Struct, frozen=True, kw_only=True):
    """Opinions of one kind of judge."""

    sent: int
    mean: float
    """Mean score of those with a score."""
    delay_p50_s: float
    """Median seconds from answer to opinion."""


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot on the held-out messages."""

    snapshot_id: str
    messages: int
    greedy: float
    """Accuracy of the most likely tool."""
    sampled: float
    """Expected reward of a sampled answer."""


class Leak(msgspec.Struct, frozen=True, kw_only=True):
    """What the leak scan saw."""

    planted: int
    """Values that were planted in messages and comments."""
    found: int
    """Of those, readable anywhere."""
    places: dict[str, int]
    """Hits by place, 0 where it was looked in vain."""
    searched_bytes: int


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """One run."""

    started_at: str
    """UTC, ISO 8601: start of the play."""
    seed: int
    shuffled: bool
    source: str
    """Name of the messages file, or `own corpus`."""
    rate: float
    """Messages a second."""
    play_s: float
    total_s: float
    """From start to end of the demo, without rendering the report."""
    stages: dict[str, float]
    """Seconds of each stage, in order."""
    sent: int
    """Messages sent."""
    answered: list[Answered]
    failed: dict[str, int]
    """Messages without an answer, by what went wrong."""
    feedback_failed: dict[str, int]
    heard: dict[str, Heard]
    """Opinions by kind of judge."""
    late_ms_p99: float
    """How late the player itself sent: part of each latency."""
    trainings: list[Training]
    steps: list[Step]
    loaded: int
    """Distinct snapshots that nodes loaded."""
    rewards: list[RewardPoint]
    ranges: list[RangePoint]
    events: dict[str, Count]
    tables: dict[str, int]
    """Rows of every table at the end."""
    doubled: int
    """Event ids stored more than once, in all tables."""
    table_lag_s: dict[str, float]
    """p50 and p99: seconds from an answer to its row in the table."""
    proof_ok: bool
    proof_differences: list[str]
    before: Measured | None
    after: Measured | None
    leak: Leak
    restarts: dict[str, int]
    """Processes that crashed and were started again."""


def save(path: Path, recording: Recording) -> None:
    """Write the recording as JSON."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(recording), indent=1))


def load(path: Path) -> Recording:
    """Read what `save` wrote."""
    return msgspec.json.decode(path.read_bytes(), type=Recording)
