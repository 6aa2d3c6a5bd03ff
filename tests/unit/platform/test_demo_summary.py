"""Summary and report, from a recording."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import msgspec
import pytest

from afterbay.platform.demo.orchestration import runs_of
from afterbay.platform.demo.recording import Count, Leak, Recording, load, save
from afterbay.platform.demo.report import render
from afterbay.platform.demo.summary import page, percentile, problems, summarise
from afterbay.schemas.errors import Unavailable
from tests.support.example_run import example_run

RUN = example_run()


def _but(**changed: object) -> Recording:
    return msgspec.structs.replace(RUN, **changed)


def test_the_summary_has_what_was_promised() -> None:
    summary = summarise(RUN)
    promised = "messages events lost doubled snapshots heldout_reward latency_ms pii_in_clear"
    assert summary.keys() >= {*promised.split(), "seconds", "seed"}
    assert summary["snapshots"].keys() >= {"published", "loaded", "promoted"}
    assert summary["heldout_reward"] == {"before": 0.55, "after": 0.68}
    assert summary["events"]["inference.completed.v2"] == {"sent": 1000, "found": 1000}
    assert summary["latency_ms"].keys() >= {"p50", "p99", "p99_while_training"}


def test_latency_while_training_is_that_of_requests_due_while_a_trainer_ran() -> None:
    slow = [
        msgspec.structs.replace(a, latency_ms=500.0 if 30 <= a.due_s <= 36 else 10.0)
        for a in RUN.answered
    ]
    ms = summarise(_but(answered=slow))["latency_ms"]
    assert (ms["p99_while_training"], ms["p99_otherwise"], ms["p50"]) == (500.0, 10.0, 10.0)


def test_a_good_run_has_no_problems() -> None:
    assert problems(RUN, 2) == []


@pytest.mark.parametrize(
    ("run", "told"),
    [
        (_but(events={"inference.completed.v2": Count(10, 9)}), "1 events lost"),
        (_but(doubled=3), "3 events doubled"),
        (_but(proof_ok=False, proof_differences=["reward: a hole"]), "a hole"),
        (_but(trainings=[]), "0 trainings"),
        (_but(answered=[]), "no message was answered"),
        (
            _but(leak=Leak(planted=4, found=1, places={"run/a.log": 2}, searched_bytes=1)),
            "readable in run/a.log",
        ),
    ],
)
def test_whatever_is_wrong_is_told(run: Recording, told: str) -> None:
    assert told in " ".join(problems(run, 2))


def test_percentiles_are_values_that_were_seen() -> None:
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([1.0], 0.99) == 1.0
    assert percentile([], 0.5) is None


def test_a_recording_is_read_back_as_it_was_saved(tmp_path: Path) -> None:
    save(tmp_path / "recording.json", RUN)
    assert load(tmp_path / "recording.json") == RUN


def test_the_report_needs_no_other_file_and_has_every_plot() -> None:
    html = render(RUN, [])
    images = re.findall(r'<img alt="([^"]+)" src="data:image/svg\+xml;base64,([^"]+)"', html)
    assert [name for name, _ in images] == [
        "Reward over time, by snapshot",
        "Latency",
        "Trainings",
        "Reward ranges",
    ]
    assert all(b"<svg" in base64.b64decode(data) for _, data in images)
    assert not re.search(r'(src|href)="(?!data:)', html)
    assert "Where each event went" in html
    assert ">ok</span>" in html


def test_the_report_says_what_is_wrong_and_escapes_it() -> None:
    html = render(_but(source="<script>.csv", doubled=2), ["2 events doubled"])
    assert "2 events doubled" in html
    assert "not ok" in html
    assert "<script>" not in html


def test_a_run_that_saw_nothing_has_a_report_too() -> None:
    empty = _but(
        answered=[],
        trainings=[],
        steps=[],
        rewards=[],
        ranges=[],
        events={},
        tables={},
        before=None,
        after=None,
        table_lag_s={},
    )
    assert "<html" in render(empty, problems(empty, 3))
    assert page(empty)


def test_dagsters_reply_becomes_runs_with_the_times_and_figures_of_their_trainings() -> None:
    step = {"stepKey": "policy_snapshot", "startTime": 10.0, "endTime": 16.0}
    trained = {"runId": "a", "jobName": "train", "status": "SUCCESS", "stepStats": [step]}
    waiting = {"runId": "b", "jobName": "promote", "status": "QUEUED", "stepStats": []}
    entries = [
        {"label": "snapshot_id", "text": "s1"},
        {"label": "ess", "floatValue": 31.5},
        {"label": "rows", "intRepr": "400"},
    ]
    reply = {
        "data": {
            "runsOrError": {"results": [waiting, trained]},
            "assetOrError": {"assetMaterializations": [{"runId": "a", "metadataEntries": entries}]},
        }
    }
    first, second = runs_of(reply)
    assert (first.trainer, first.snapshot_id) == ((10.0, 16.0), "s1")
    assert first.metrics == {"ess": 31.5, "rows": 400.0}
    assert (first.under_way, second.under_way) == (False, True)


def test_a_reply_without_runs_is_an_error_that_says_where_to_look() -> None:
    with pytest.raises(Unavailable, match="log"):
        runs_of({"data": {"runsOrError": {"message": "broken"}}})
