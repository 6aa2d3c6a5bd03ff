"""What the acceptance asks of each run."""

from __future__ import annotations

import pytest

from afterbay.platform.demo.accept import Trial, failures, trials

REAL, CONTROL = Trial("seed-1", 1, shuffled=False), Trial("control-1", 1, shuffled=True)


def _summary(
    after: float, greedy: float = 0.6, problems: tuple[str, ...] = ()
) -> dict[str, object]:
    return {
        "problems": list(problems),
        "heldout_reward": {"before": 0.5, "after": after},
        "heldout_greedy": {"before": greedy, "after": 0.7},
    }


def test_three_seeds_and_one_control_are_run() -> None:
    assert [t.name for t in trials([1, 2, 3])] == ["seed-1", "seed-2", "seed-3", "control-1"]


@pytest.mark.parametrize(("trial", "after"), [(REAL, 0.61), (CONTROL, 0.51), (CONTROL, 0.3)])
def test_a_real_run_must_gain_and_the_control_must_not(trial: Trial, after: float) -> None:
    assert failures(trial, _summary(after)) == []


@pytest.mark.parametrize(
    ("trial", "summary", "told"),
    [
        (REAL, _summary(0.59), "gain +0.090"),
        (CONTROL, _summary(0.53), "control gained +0.030"),
        (REAL, _summary(0.7, greedy=0.49), "greedy accuracy 0.490"),
        (REAL, _summary(0.7, problems=("2 events lost",)), "2 events lost"),
    ],
)
def test_a_broken_promise_is_told(trial: Trial, summary: dict[str, object], told: str) -> None:
    assert told in "; ".join(failures(trial, summary))


def test_a_run_that_measured_nothing_keeps_no_promise() -> None:
    nothing = {"before": None, "after": None}
    summary = {"problems": [], "heldout_reward": nothing, "heldout_greedy": nothing}
    assert failures(REAL, summary)
