"""The fold of snapshot events: total, idempotent, and never in two minds about who serves."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterbay.schemas.events import PolicySnapshot
from afterbay.streams.arms import ArmState, fold_arms

ACTIONS = ("published", "canary", "promoted", "rolled_back", "retired")


def event(
    action: str, snapshot: str, number: int = 0, split: float | None = 0.5, digest: str = ""
) -> PolicySnapshot:
    return PolicySnapshot(
        event_id=f"{action}-{snapshot}-{number}",
        policy="bank-agent",
        action=action,
        snapshot_id=snapshot,
        digest=digest or f"digest-{snapshot}",
        uri=f"snapshots/{snapshot}",
        manifest="{}",
        signature="",
        split=split,
    )


def told(story: str) -> ArmState:
    """The state after a story such as `published a, promoted a`."""
    steps = [step.split() for step in story.split(",")]
    return fold_arms(event(action, name, at) for at, (action, name) in enumerate(steps))


def ids(state: ArmState) -> tuple[str | None, str | None]:
    current, candidate = (
        None if arm is None else arm.snapshot_id for arm in (state.current, state.candidate)
    )
    return current, candidate


@pytest.mark.parametrize(
    ("story", "current", "candidate"),
    [
        ("published a", None, None),
        ("published a, canary a", None, "a"),
        ("published a, promoted a", "a", None),
        ("promoted a, published b, canary b", "a", "b"),
        ("promoted a, canary b, promoted b", "b", None),
        ("promoted a, canary b, rolled_back b", "a", None),
        ("promoted a, canary b, canary c", "a", "c"),
        ("promoted a, canary b, promoted c", "c", "b"),
        ("promoted a, canary a", "a", None),
        ("promoted a, promoted b, rolled_back b", "a", None),
        ("promoted a, promoted b, promoted c, rolled_back b, rolled_back c", "a", None),
        ("promoted a, promoted b, promoted c, retired a, rolled_back c, rolled_back b", None, None),
        ("promoted a, promoted b, canary a, rolled_back a, rolled_back b", None, None),
        ("promoted a, rolled_back a", None, None),
        ("promoted a, rolled_back a, promoted a", "a", None),
        ("promoted a, retired a, promoted a, canary a", None, None),
        ("promoted a, promoted b, promoted a, rolled_back a", "b", None),
        ("invented a, promoted b, vanished b", "b", None),
    ],
)
def test_a_story_ends_with_these_arms(
    story: str, current: str | None, candidate: str | None
) -> None:
    assert ids(told(story)) == (current, candidate)


def test_the_split_is_the_canary_events_and_ends_with_it() -> None:
    state = told("promoted a, canary b")
    assert [(s.arm, s.probability, s.snapshot.snapshot_id) for s in state.shares()] == [
        ("current", 0.5, "a"),
        ("candidate", 0.5, "b"),
    ]
    assert state.canary_event_id == "canary-b-1"
    ended = state.advance(event("promoted", "b", 9))
    assert [(s.arm, s.probability) for s in ended.shares()] == [("current", 1.0)]
    assert ended.canary_event_id is None


@pytest.mark.parametrize(
    ("split", "shares"),
    [
        (0.0, [("current", 1.0)]),
        (-1.0, [("current", 1.0)]),
        (1.0, [("candidate", 1.0)]),
        (7.0, [("candidate", 1.0)]),
        (None, [("current", 0.5), ("candidate", 0.5)]),
        (math.nan, [("current", 0.5), ("candidate", 0.5)]),
    ],
)
def test_any_split_becomes_a_probability(
    split: float | None, shares: list[tuple[str, float]]
) -> None:
    state = fold_arms([event("promoted", "a"), event("canary", "b", split=split)])
    assert [(s.arm, s.probability) for s in state.shares()] == shares


def test_an_event_with_another_digest_for_a_known_snapshot_changes_nothing() -> None:
    state = told("published a, promoted b")
    forged = state.advance(event("promoted", "a", 9, digest="other"))
    assert ids(forged) == ("b", None)
    assert forged.snapshots["a"].digest == "digest-a"


def test_lag_counts_snapshots_published_since() -> None:
    state = told("published a, promoted a, published b, published c, published b")
    assert [state.lag(name) for name in ("a", "b", "c", "unknown")] == [2, 1, 0, None]


def test_nodes_hold_both_arms_the_current_one_first() -> None:
    assert [s.snapshot_id for s in told("canary b, promoted a").wanted()] == ["a", "b"]


events = st.builds(
    event,
    st.sampled_from((*ACTIONS, "unheard-of")),
    st.sampled_from("abcd"),
    st.integers(0, 40),
    st.none() | st.floats(),
    st.sampled_from(("", "", "", "other")),
)
streams = st.lists(events, max_size=40)


@given(streams)
def test_every_order_of_events_ends_in_a_state_that_holds_together(
    stream: list[PolicySnapshot],
) -> None:
    state = fold_arms(stream)
    current, candidate = ids(state)
    serving = {s for s in (current, candidate) if s}
    assert current is None or current != candidate
    assert sum(s.probability for s in state.shares()) == pytest.approx(1.0 if current else 0.0)
    assert (candidate is None) == (state.canary_event_id is None)
    assert len(set(state.history)) == len(state.history)
    assert not serving & set(state.history)
    assert state.snapshots.keys() == state.standing.keys()
    for name, standing in state.standing.items():
        assert (standing == "current") == (name == current)
        assert (standing == "candidate") == (name == candidate)
        assert (standing == "former") == (name in state.history)


@given(streams, st.data())
def test_doubled_events_change_nothing_wherever_they_come(
    stream: list[PolicySnapshot], data: st.DataObject
) -> None:
    doubled = list(stream)
    for at in data.draw(st.lists(st.integers(0, max(0, len(stream) - 1)), max_size=8)):
        if stream:
            later = data.draw(st.integers(doubled.index(stream[at]) + 1, len(doubled)))
            doubled.insert(later, stream[at])
    assert fold_arms(doubled) == fold_arms(stream)


@given(streams, streams)
def test_folding_on_from_a_state_equals_folding_all(
    first: list[PolicySnapshot], then: list[PolicySnapshot]
) -> None:
    assert fold_arms(then, fold_arms(first)) == fold_arms(first + then)


@given(streams, st.sampled_from("abcd"), streams)
def test_a_retired_snapshot_never_serves_again(
    before: list[PolicySnapshot], name: str, after: list[PolicySnapshot]
) -> None:
    state = fold_arms(before)
    gone = state.advance(event("retired", name, 99, digest=_digest(state, name)))
    assert name not in ids(fold_arms(after, gone))


def _digest(state: ArmState, name: str) -> str:
    return state.snapshots[name].digest if name in state.snapshots else ""
