"""The reward unit against a second, row-by-row implementation and its own promises."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterbay.dsa.rewards import Edges, SourceMean

FUNCTION = SourceMean()
opinions = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 2), st.integers(0, 100).map(lambda n: n / 100)),
    max_size=40,
)
Opinions = list[tuple[int, int, float]]


def fold(rows: Opinions) -> tuple[list[float], list[int]]:
    groups = np.array([row[0] for row in rows], dtype=np.int64)
    sources = np.array([row[1] for row in rows], dtype=np.int64)
    scores = np.array([row[2] for row in rows], dtype=np.float64)
    folded = FUNCTION.fold(groups, sources, scores)
    return folded.rewards.tolist(), folded.counts.tolist()


def exact_reward(rows: Opinions, group: int) -> float:
    """The definition in exact fractions, one opinion after the other."""
    total, weighted = Fraction(0), Fraction(0)
    for index, (_, weight) in enumerate(FUNCTION.weights):
        scores = [Fraction(s) for g, source, s in rows if g == group and source == index]
        if scores:
            total += Fraction(weight)
            weighted += Fraction(weight) * sum(scores) / len(scores)
    return float(weighted / total) if total else FUNCTION.default


@given(opinions)
def test_columns_give_what_the_definition_gives_in_exact_fractions(rows: Opinions) -> None:
    rewards, _ = fold(rows)
    for group, reward in enumerate(rewards):
        assert reward == pytest.approx(exact_reward(rows, group), abs=1e-12)


@given(opinions, st.randoms())
def test_the_order_of_opinions_does_not_matter(rows: Opinions, random: object) -> None:
    mixed = list(rows)
    random.shuffle(mixed)  # type: ignore[attr-defined]  # Hypothesis types its Random as object
    assert fold(mixed)[0] == pytest.approx(fold(rows)[0], abs=1e-12)
    assert fold(mixed)[1] == fold(rows)[1]


@given(opinions)
def test_a_reward_stays_in_the_unit_interval(rows: Opinions) -> None:
    assert all(0 <= reward <= 1 for reward in fold(rows)[0])


def test_a_source_counts_once_however_often_it_speaks() -> None:
    once = fold([(0, 0, 1.0), (0, 2, 0.0)])[0]
    often = fold([(0, 0, 1.0), *[(0, 2, 0.0)] * 50])[0]
    assert once == often == [pytest.approx(0.8)]


def test_nobody_spoke_is_the_default() -> None:
    assert fold([(1, 0, 1.0)]) == ([0.5, 1.0], [0, 1])


@pytest.mark.parametrize("score", [float("nan"), -0.01, 1.01, float("inf")])
def test_a_score_outside_the_unit_interval_is_refused(score: float) -> None:
    with pytest.raises(ValueError, match="outside"):
        fold([(0, 0, score)])


def test_ranges_are_closed_below_and_open_above() -> None:
    labels = Edges().range_of(np.array([0.0, 0.2999, 0.3, 0.6999, 0.7, 1.0]))
    assert labels.tolist() == ["low", "low", "mid", "mid", "high", "high"]


def test_edges_out_of_order_are_refused() -> None:
    with pytest.raises(ValueError, match="edges"):
        Edges(0.7, 0.3)


def test_ids_are_made_from_content() -> None:
    assert SourceMean().function_id == SourceMean().function_id
    assert SourceMean(default=0.4).function_id != SourceMean().function_id
    assert Edges(0.2, 0.8).edges_id != Edges().edges_id == Edges(0.3, 0.7).edges_id
