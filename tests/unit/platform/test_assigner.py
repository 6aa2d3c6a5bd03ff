"""Who serves a request, by what the log says and the nodes hold."""

from __future__ import annotations

import pytest

from afterbay.platform.assigner import servable
from tests.unit.streams.test_arms import told


@pytest.mark.parametrize(
    ("story", "held", "shares"),
    [
        ("published a, promoted a", "a", [("current", "a", 1.0)]),
        (
            "published a, promoted a, published b, canary b",
            "ab",
            [("current", "a", 0.5), ("candidate", "b", 0.5)],
        ),
        ("published a, promoted a, published b, canary b", "a", [("current", "a", 1.0)]),
        # what a candidate is compared with is away: it does not take everybody instead
        ("published a, promoted a, published b, canary b", "b", []),
        ("published a, promoted a, published b, promoted b", "a", [("current", "a", 1.0)]),
        (
            "published a, promoted a, published b, promoted b, rolled_back b",
            "a",
            [("current", "a", 1.0)],
        ),
    ],
)
def test_shares_are_those_that_nodes_can_serve(
    story: str, held: str, shares: list[tuple[str, str, float]]
) -> None:
    found = servable(told(story), {f"digest-{name}" for name in held})
    assert [(s.arm, s.snapshot.snapshot_id, s.probability) for s in found] == shares
