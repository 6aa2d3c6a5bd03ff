"""The distribution is the one that tokens are drawn from, filter by filter."""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from afterbay.schemas.errors import BadSettings
from afterbay.trainers.sampling import SamplingParams, draw, log_distribution

LOGITS = torch.tensor([[2.0, 1.0, 0.0, -1.0, 9.0]])
ALLOWED = torch.tensor([[True, True, True, True, False]])


def probabilities(**params: float) -> list[float]:
    found = log_distribution(LOGITS, ALLOWED, [SamplingParams(**params)])  # type: ignore[arg-type]  # top_k is whole in every call
    return [round(value, 6) for value in found.exp()[0].tolist()]


def _normalized(*values: float) -> list[float]:
    return [round(value / sum(values), 6) for value in values]


E = math.e


def test_only_what_the_grammar_allows_has_mass() -> None:
    assert probabilities() == [*_normalized(E**2, E, 1, 1 / E), 0]


def test_temperature_divides_the_logits() -> None:
    assert probabilities(temperature=0.5) == [*_normalized(E**4, E**2, 1, E**-2), 0]


def test_temperature_zero_is_certain_of_the_best() -> None:
    assert probabilities(temperature=0) == [1, 0, 0, 0, 0]


def test_top_k_keeps_the_best() -> None:
    assert probabilities(top_k=2) == [*_normalized(E**2, E), 0, 0, 0]


def test_top_p_keeps_the_token_that_crosses_it() -> None:
    # plain mass: 0.644, 0.237, 0.087, 0.032
    assert probabilities(top_p=0.644) == [*_normalized(E**2, E), 0, 0, 0]
    assert probabilities(top_p=0.643) == [1, 0, 0, 0, 0]


def test_min_p_is_relative_to_the_best() -> None:
    # relative to the best: 1, 0.368, 0.135, 0.050
    assert probabilities(min_p=0.1) == [*_normalized(E**2, E, 1), 0, 0]


def test_filters_apply_one_after_the_other() -> None:
    # top-k leaves 0.731, 0.269; of these top-p keeps the first alone
    assert probabilities(top_k=2, top_p=0.7) == [1, 0, 0, 0, 0]


@given(
    st.lists(
        st.builds(
            SamplingParams,
            st.sampled_from([0.0, 0.5, 1.0, 2.0]),
            st.floats(0.05, 1),
            st.integers(0, 6),
            st.floats(0, 1),
        ),
        min_size=1,
        max_size=5,
    ),
    st.integers(0, 10**6),
)
def test_each_row_is_a_distribution_whatever_its_neighbours_ask(
    sampling: list[SamplingParams], seed: int
) -> None:
    chance = torch.Generator().manual_seed(seed)
    logits = torch.randn(len(sampling), 9, generator=chance)
    allowed = torch.rand(len(sampling), 9, generator=chance) < 0.6
    allowed[:, 4] = True
    found = log_distribution(logits, allowed, sampling)
    assert torch.allclose(found.exp().sum(dim=1), torch.ones(len(sampling)))
    assert bool((found[~allowed] == -torch.inf).all())
    for row, params in enumerate(sampling):
        alone = log_distribution(logits[row : row + 1], allowed[row : row + 1], [params])
        assert torch.equal(alone[0], found[row])


def test_draws_follow_the_distribution_and_never_leave_it() -> None:
    log_probs = log_distribution(LOGITS, ALLOWED, [SamplingParams()])[0]
    dice = random.Random(1)  # noqa: S311  # repeatable, not a secret
    counts = Counter(draw(log_probs, dice) for _ in range(20_000))
    assert set(counts) == {0, 1, 2, 3}
    for token_id in range(4):
        expected = float(log_probs[token_id].exp())
        error = math.sqrt(expected * (1 - expected) / 20_000)
        assert abs(counts[token_id] / 20_000 - expected) < 4 * error


@pytest.mark.parametrize(
    "bad",
    [{"temperature": -1}, {"top_p": 0}, {"top_p": 1.1}, {"min_p": 2}, {"top_k": -1},
     {"temperature": math.nan}],
)  # fmt: skip
def test_parameters_out_of_range_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(BadSettings, match="sampling"):
        SamplingParams(**bad)  # type: ignore[arg-type]  # that is the point
