"""The form of a benchmark's result."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.bench.__main__ import main, names
from tests.bench.harness import Figure, Peer, Reach, write_result


def test_a_result_has_the_form_that_later_work_reads(tmp_path: Path) -> None:
    figure = Figure(
        name="rows",
        value=60.0,
        unit="rows/s",
        n=10,
        peer=Peer("other", 10.0),
        reach=Reach(">=", 5.0),
    )
    write_result(tmp_path / "x" / "some.json", "some", [figure])
    result = json.loads((tmp_path / "x" / "some.json").read_text())
    assert result.keys() == {"name", "command", "machine", "figures"}
    assert result["figures"] == [
        {
            "name": "rows",
            "value": 60.0,
            "unit": "rows/s",
            "n": 10,
            "peer": {"name": "other", "value": 10.0},
            "ratio": 6.0,
            "reach": ">= 5",
            "ok": True,
        }
    ]


@pytest.mark.parametrize(
    ("value", "peer", "reach", "ok"),
    [
        (4.0, None, Reach("<=", 5.0), True),
        (6.0, None, Reach("<=", 5.0), False),
        (40.0, Peer("p", 10.0), Reach(">=", 5.0), False),
        (1.0, None, None, None),
    ],
)
def test_what_is_to_be_reached_is_asked_of_the_ratio_if_there_is_a_peer(
    value: float, peer: Peer | None, reach: Reach | None, ok: bool | None
) -> None:
    assert Figure(name="f", value=value, unit="s", n=1, peer=peer, reach=reach).ok is ok


def test_benchmarks_are_listed_by_name_and_an_unknown_one_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert "loop" in names()
    assert "harness" not in names()
    assert main(["nonsense"]) == 2
    assert "loop" in capsys.readouterr().out
