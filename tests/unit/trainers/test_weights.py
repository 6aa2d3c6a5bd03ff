"""Importance weights and KL against right values from outside.

Values: torchrl, ray rllib, verl, AReaL and TRL agree on them; checked by hand.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from afterbay.trainers.estimators import effective_sample_size
from afterbay.trainers.weights import (
    kl_k3,
    masked_mean,
    ratio_of,
    sequence_log_ratio,
    truncated,
    truncation_bound,
)

RHO = torch.tensor([[0.5, 1.0, 4.0], [1.25, 0.8, 1.0]])
MASK = torch.tensor([[True, True, True], [True, True, False]])
LOG_RHO = RHO.log()


def test_token_weights_truncated_at_two() -> None:
    weights = truncated(LOG_RHO, 2.0).masked_fill(~MASK, 0)
    assert torch.allclose(weights, torch.tensor([[0.5, 1, 2], [1.25, 0.8, 0]]))
    assert float(masked_mean(weights, MASK)) == pytest.approx(1.11)


def test_sequence_weights_truncated_at_two() -> None:
    weights = truncated(sequence_log_ratio(LOG_RHO, MASK), 2.0)
    assert torch.allclose(weights, torch.tensor([2.0, 1.0]))
    assert float(masked_mean(weights.unsqueeze(1).expand(2, 3), MASK)) == pytest.approx(1.6)


def test_the_sample_size_to_report_is_that_of_untruncated_weights() -> None:
    kept = ratio_of(LOG_RHO)[MASK].double().numpy()
    assert float(masked_mean(ratio_of(LOG_RHO), MASK)) == pytest.approx(1.51)
    assert effective_sample_size(kept) == pytest.approx(2.93034, abs=1e-5)
    assert effective_sample_size(kept) / 5 == pytest.approx(0.5860686, abs=1e-6)
    hidden = truncated(LOG_RHO, 2.0)[MASK].double().numpy()
    assert effective_sample_size(hidden) == pytest.approx(4.13318, abs=1e-5)


def test_k3_counts_no_padding() -> None:
    assert float(kl_k3(LOG_RHO, MASK)) == pytest.approx(0.3713706, abs=1e-6)
    everything = torch.ones_like(MASK)
    assert float(kl_k3(LOG_RHO, everything)) == pytest.approx(0.3094755, abs=1e-6)


def test_a_masked_mean_counts_no_padding() -> None:
    loss = torch.tensor([[1.0, 100.0], [1.0, -50.0]])
    assert float(masked_mean(loss, torch.tensor([[True, False], [True, False]]))) == 1.0
    assert float(masked_mean(loss, torch.zeros(2, 2, dtype=torch.bool))) == 0.0


@pytest.mark.parametrize(
    ("clip_max", "step", "bound"),
    [
        (100, 0, 100.0),
        (100, 50_000, 50.0),
        (100, 99_000, 1.0),
        (100, 100_000, 1.0),
        (100, 1_000_000, 1.0),
        (2, 0, 2.0),
        (2, 98_000, 2.0),
        (2, 99_500, 1.0),
    ],
)
def test_the_bound_tightens_with_the_steps(clip_max: float, step: int, bound: float) -> None:
    assert truncation_bound(step, clip_max) == pytest.approx(bound)


def test_the_largest_log_ratio_overflows_nothing() -> None:
    log_ratio = torch.tensor([[2.302585, -2.302585], [200.0, 0.0]])
    assert bool(torch.isfinite(ratio_of(log_ratio)).all())
    assert float(truncated(log_ratio, 2.0).max()) == 2.0
    assert math.isfinite(float(kl_k3(log_ratio, torch.ones(2, 2, dtype=torch.bool))))
    assert effective_sample_size(np.array([1e300, 1.0])) == pytest.approx(1.0)


@given(st.lists(st.floats(-30, 30), min_size=1, max_size=20))
def test_k3_is_never_negative_and_a_ratio_of_one_weighs_one(values: list[float]) -> None:
    log_ratio = torch.tensor([values])
    mask = torch.ones_like(log_ratio, dtype=torch.bool)
    assert float(kl_k3(log_ratio, mask)) >= 0
    assert bool((truncated(torch.zeros_like(log_ratio), 2.0) == 1).all())
