"""Off-policy estimators against right values from outside, and their own bounds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterbay.trainers import estimators

# obp 0.4.1 and an independent re-computation gave these values for these six rows
ACTIONS = np.array([0, 1, 2, 0, 1, 2])
REWARDS = np.array([1.0, 0, 1, 0, 1, 0])
PROPENSITIES = np.array([0.5, 0.25, 0.25, 0.4, 0.4, 0.2])
TARGET = np.array(
    [
        [0.2, 0.3, 0.5],
        [0.1, 0.6, 0.3],
        [0.25, 0.25, 0.5],
        [0.7, 0.2, 0.1],
        [0.3, 0.5, 0.2],
        [0.1, 0.1, 0.8],
    ]
)
ROWS = np.arange(6)
WEIGHTS = TARGET[ROWS, ACTIONS] / PROPENSITIES


def test_weights_are_target_over_propensity() -> None:
    assert pytest.approx([0.4, 2.4, 2, 1.75, 1.25, 4], abs=1e-8) == WEIGHTS.tolist()


def test_snips_and_sample_size_as_obp_has_them() -> None:
    assert estimators.snips(REWARDS, WEIGHTS) == pytest.approx(0.30932203, abs=1e-8)
    assert estimators.effective_sample_size(WEIGHTS) == pytest.approx(4.55852022, abs=1e-8)


def test_the_policy_against_its_own_log_is_the_mean_reward() -> None:
    found = estimators.snips_estimate(REWARDS, np.ones(6))
    assert (found.snips, found.ess, found.n) == (0.5, 6.0, 6)


def test_without_rows_or_weight_there_is_no_estimate() -> None:
    for rewards, weights in ((np.zeros(0), np.zeros(0)), (np.ones(3), np.zeros(3))):
        found = estimators.snips_estimate(rewards, weights)
        assert math.isnan(found.snips)
        assert math.isnan(found.half_width)
        assert found.ess == 0


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(1e-6, 1e6)), min_size=1, max_size=30))
def test_snips_stays_within_the_rewards_and_sample_size_within_the_rows(
    rows: list[tuple[float, float]],
) -> None:
    rewards, weights = (np.array(column) for column in zip(*rows, strict=True))
    found = estimators.snips_estimate(rewards, weights)
    assert rewards.min() - 1e-9 <= found.snips <= rewards.max() + 1e-9
    assert 1 - 1e-9 <= found.ess <= len(rows) + 1e-9
