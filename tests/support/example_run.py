"""A recording of a run that never was, for tests of summary and report."""

from __future__ import annotations

from random import Random

from afterbay.platform.demo.recording import (
    Answered,
    Count,
    Heard,
    Leak,
    Measured,
    RangePoint,
    Recording,
    RewardPoint,
    Span,
    Step,
    Training,
)

WARM, FIRST, SECOND = "0193-warm", "0193-first", "0193-second"


def example_run() -> Recording:
    """100 s at 10/s: two trainings, the first promoted, the second rolled back; nothing lost."""
    random = Random(7)  # noqa: S311  # a test's own chance is repeatable
    answered = [Answered(i / 10, 20 + random.expovariate(0.2)) for i in range(1000)]
    return Recording(
        started_at="2026-12-01T10:00:00.000+00:00",
        seed=7,
        shuffled=False,
        source="own corpus",
        rate=10.0,
        play_s=112.0,
        total_s=190.0,
        stages={"start": 20.0, "warm start": 10.0, "play": 112.0, "drain": 8.0},
        sent=1001,
        answered=answered,
        failed={"HTTP 503": 1},
        feedback_failed={},
        heard={"person": Heard(sent=1000, mean=0.6, delay_p50_s=4.0)},
        late_ms_p99=1.5,
        trainings=[_training(FIRST, 30.0, 0.1), _training(SECOND, 70.0, 0.3)],
        steps=[
            Step(at_s=-5.0, snapshot_id=WARM, action="published"),
            Step(at_s=-5.0, snapshot_id=WARM, action="promoted"),
            Step(at_s=37.0, snapshot_id=FIRST, action="published"),
            Step(at_s=50.0, snapshot_id=FIRST, action="promoted"),
            Step(at_s=77.0, snapshot_id=SECOND, action="published"),
            Step(at_s=90.0, snapshot_id=SECOND, action="rolled_back"),
        ],
        loaded=3,
        rewards=[_reward(at) for at in range(5, 100, 10)],
        ranges=[
            RangePoint(at_s=float(at), reward_range=name, n=n)
            for at in range(5, 100, 10)
            for name, n in (("low", 40 - at // 5), ("mid", 10), ("high", 50 + at // 5))
        ],
        events={
            "inference.completed.v2": Count(1000, 1000),
            "feedback.received.v2": Count(3900, 3900),
            "reward.assigned.v2": Count(2500, 2500),
        },
        tables={"inference": 1000, "feedback": 3900, "reward": 2500, "experience": 2500},
        doubled=0,
        table_lag_s={"p50": 1.2, "p99": 2.4},
        proof_ok=True,
        proof_differences=[],
        before=Measured(snapshot_id=WARM, messages=500, greedy=0.6, sampled=0.55),
        after=Measured(snapshot_id=FIRST, messages=500, greedy=0.7, sampled=0.68),
        leak=Leak(planted=40, found=0, places={"kafka/all": 0}, searched_bytes=1 << 24),
        restarts={},
    )


def _training(snapshot_id: str, start_s: float, kl: float) -> Training:
    metrics = {"kl_per_token_nats": kl, "ess": 300.0, "rows": 400.0, "reward_mean": 0.6}
    return Training(snapshot_id=snapshot_id, span=Span(start_s, start_s + 6), metrics=metrics)


def _reward(at: int) -> RewardPoint:
    snapshot_id = WARM if at < 50 else FIRST
    return RewardPoint(
        at_s=float(at), snapshot_id=snapshot_id, arm="current", mean=0.5 + at / 500, n=100
    )
