"""The gate and the canary's verdict: what passes, what stays, and that doubt is a no."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterbay.dagster_defs.judging import Estimate, canary_is_over, gate, judge

rewards = st.lists(st.floats(0, 1), max_size=60)


def passed(candidate: float, current: float, ess: float = 80.0) -> bool:
    sides = Estimate(snips=candidate, ess=ess), Estimate(snips=current, ess=2 * ess)
    return gate(*sides, margin=-0.02, least_ess=50).passed


def test_a_candidate_that_is_not_worse_passes() -> None:
    assert passed(0.60, 0.60)
    assert passed(0.585, 0.60)
    assert not passed(0.575, 0.60)


def test_too_little_evidence_holds_a_good_candidate_back() -> None:
    assert passed(0.9, 0.1, ess=50)
    assert not passed(0.9, 0.1, ess=49.9)


def test_the_smaller_effective_sample_size_decides() -> None:
    large, small = Estimate(snips=0.9, ess=900), Estimate(snips=0.1, ess=9)
    assert gate(large, small, margin=-0.02, least_ess=50).ess == 9
    assert not gate(large, small, margin=-0.02, least_ess=50).passed


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_useless_numbers_are_a_no(bad: float) -> None:
    assert not passed(bad, 0.5)
    assert not passed(0.5, bad)
    assert not passed(0.9, 0.1, ess=math.nan)


def verdict(candidate: list[float], current: list[float]) -> str:
    return judge(candidate, current, least=10, z=1.645).action


def test_a_clearly_worse_candidate_goes_and_a_better_one_stays() -> None:
    good, bad = [1.0, 0.0, 1.0, 1.0] * 25, [0.0, 0.0, 1.0, 0.0] * 25
    assert verdict(good, bad) == "promoted"
    assert verdict(bad, good) == "rolled_back"
    assert verdict(good, good) == "promoted"


def test_an_arm_without_rewards_proves_nothing() -> None:
    assert verdict([], [1.0] * 50) == "rolled_back"
    assert verdict([1.0] * 50, [0.0] * 9) == "rolled_back"
    assert verdict([1.0] * 10, [0.0] * 10) == "promoted"


def test_the_standard_error_is_welchs() -> None:
    # R: t.test(c(1,2,3,4), c(2,4,6)) gives t = -1.1339 with means 2.5 and 4
    found = judge([1, 2, 3, 4], [2, 4, 6], least=2, z=1)
    assert found.difference / found.standard_error == pytest.approx(-1.1339, abs=5e-4)


@given(rewards, rewards)
def test_every_pair_of_arms_has_a_verdict(candidate: list[float], current: list[float]) -> None:
    found = judge(candidate, current, least=10, z=1.645)
    assert found.action in ("promoted", "rolled_back")
    assert (found.candidate_n, found.current_n) == (len(candidate), len(current))
    if min(len(candidate), len(current)) < 10:
        assert found.action == "rolled_back"


@given(st.lists(st.floats(0, 1), min_size=10, max_size=60))
def test_a_candidate_that_does_the_same_stays(values: list[float]) -> None:
    assert judge(values, values, least=10, z=1.645).action == "promoted"


@pytest.mark.parametrize(
    ("count", "elapsed", "over"), [(0, 0, False), (99, 19.9, False), (100, 0, True), (0, 20, True)]
)
def test_a_canary_ends_by_rewards_or_by_time(count: int, elapsed: float, over: bool) -> None:
    assert canary_is_over(count, elapsed, rewards_asked=100, seconds_asked=20) == over


def test_golden_estimates_can_be_gated() -> None:
    file = Path(__file__).parents[4] / "shared" / "golden" / "ope.json"
    if not file.exists():
        pytest.skip("../shared is not here; golden numbers come from there")
    tiny = json.loads(file.read_text())["tiny"]
    estimate = Estimate(snips=tiny["snips"], ess=tiny["ess"])
    assert gate(estimate, estimate, margin=-0.02, least_ess=4).passed
    assert not gate(estimate, estimate, margin=-0.02, least_ess=50).passed
