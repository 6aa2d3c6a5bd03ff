"""The loss pushes answers up and down by weight and advantage, and nothing else."""

from __future__ import annotations

import math

import pytest
import torch

from afterbay.trainers.losses import truncated_reinforce

MASK = torch.tensor([[True, True, False], [True, False, False]])


def test_the_loss_is_the_weighted_mean_worked_out_by_hand() -> None:
    log_probs = torch.tensor([[-1.0, -0.5, -9.0], [-0.2, -9.0, -9.0]])
    loss = truncated_reinforce(log_probs, MASK, torch.tensor([2.0, 0.5]), torch.tensor([0.4, -0.6]))
    by_hand = -(2.0 * 0.4 * -1.5 + 0.5 * -0.6 * -0.2) / 2
    assert float(loss) == pytest.approx(by_hand)


def test_the_gradient_of_a_token_is_weight_times_advantage() -> None:
    log_probs = torch.zeros(2, 3, requires_grad=True)
    weights = torch.tensor([2.0, 0.5], requires_grad=True)
    truncated_reinforce(log_probs, MASK, weights, torch.tensor([0.4, -0.6])).backward()  # type: ignore[no-untyped-call]  # torch leaves it unannotated
    assert log_probs.grad is not None
    expected = torch.tensor([[-0.4, -0.4, 0], [0.15, 0, 0]])
    assert torch.allclose(log_probs.grad, expected)
    assert weights.grad is None


def test_a_row_of_weight_zero_takes_no_part_even_if_it_is_impossible() -> None:
    log_probs = torch.tensor([[-1.0, -1.0, 0.0], [-math.inf, 0.0, 0.0]], requires_grad=True)
    loss = truncated_reinforce(log_probs, MASK, torch.tensor([1.0, 0.0]), torch.ones(2))
    loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it unannotated
    assert float(loss.detach()) == pytest.approx(1.0)
    assert log_probs.grad is not None
    assert log_probs.grad[1].tolist() == [0, 0, 0]
