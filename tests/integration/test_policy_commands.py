"""`afterbay policy list` and `rollback`, and lag counted in rows, on a real broker."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from afterbay.lakehouse import tables
from afterbay.lakehouse.lake import Lake
from afterbay.platform.cli.app import app
from afterbay.platform.progress import Looker
from afterbay.platform.settings import Settings
from afterbay.schemas import ids
from afterbay.schemas.clock import SystemClock
from afterbay.schemas.errors import BadSettings
from afterbay.schemas.events import Cursor, FeedbackReceived, PolicySnapshot
from afterbay.streams.kafka import KafkaAddress
from afterbay.streams.outbox import Outbox
from afterbay.streams.publishing import publish

CLOCK = SystemClock()


@pytest.fixture
def environ(log: KafkaAddress, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Environment of an installation that uses the session's broker."""
    found = {
        "AFTERBAY_HOME": str(tmp_path),
        "AFTERBAY_BOOTSTRAP": log.bootstrap,
        "AFTERBAY_TOPIC_PREFIX": log.prefix,
        "AFTERBAY_POLICY": "agent",
    }
    for name, value in found.items():
        monkeypatch.setenv(name, value)
    return found


def told(action: str, snapshot: str) -> PolicySnapshot:
    return PolicySnapshot(
        event_id=ids.new_id(datetime.now(UTC)),
        policy="agent",
        action=action,
        snapshot_id=snapshot,
        digest=snapshot * 8,
        uri=f"snapshots/{snapshot}",
        manifest="{}",
        signature="",
    )


def standing() -> dict[str, str]:
    shown = CliRunner().invoke(app, ["policy", "list", "--json"]).stdout
    return {row["snapshot_id"]: row["standing"] for row in json.loads(shown)}


def test_rollback_takes_the_candidate_first_and_then_what_serves(
    log: KafkaAddress, environ: dict[str, str]
) -> None:
    events = [told("published", name) for name in "abc"]
    events += [told("promoted", "a"), told("promoted", "b"), told("canary", "c")]
    publish(log, events, "run-1")
    assert standing() == {"a": "former", "b": "current", "c": "candidate"}
    assert CliRunner().invoke(app, ["policy", "rollback"]).stdout == "rolled back: c\n"
    assert standing() == {"a": "former", "b": "current", "c": "rolled_back"}
    CliRunner().invoke(app, ["policy", "rollback"])
    assert standing() == {"a": "current", "b": "rolled_back", "c": "rolled_back"}


def test_a_snapshot_that_nobody_told_of_is_refused(environ: dict[str, str]) -> None:
    done = CliRunner().invoke(app, ["policy", "rollback", "nothing"])
    assert isinstance(done.exception, BadSettings)
    assert "afterbay policy list" in str(done.exception)


def test_lag_counts_committed_rows_and_neither_control_records_nor_aborts(
    log: KafkaAddress, environ: dict[str, str]
) -> None:
    settings = Settings.from_env(environ)
    tables.ensure(Lake(str(settings.home.lake)))
    looker = Looker(settings)
    assert looker.look().lag == {"sink": 0, "rewarder": 0, "bucketer": 0}
    outbox = Outbox("test", log, CLOCK)
    outbox.open()
    for number in range(3):  # three transactions, so at least three control records
        outbox.commit([opinion(), opinion()], Cursor(source="test", run_id=str(number)))
    outbox.close()
    found = looker.look()
    looker.close()
    assert found.problems == ()
    assert found.lag["sink"] == 6


def test_the_arms_are_shown_as_they_serve(log: KafkaAddress, environ: dict[str, str]) -> None:
    settings = Settings.from_env(environ)
    tables.ensure(Lake(str(settings.home.lake)))
    looker = Looker(settings)
    assert looker.look().arms == {
        "policy": "agent",
        "serving": {},
        "published": 0,
        "standing": {},
    }
    publish(log, [told("published", "a"), told("promoted", "a")], "run-1")
    arms = looker.look().arms
    looker.close()
    assert arms is not None
    assert arms["serving"] == {"current": {"snapshot_id": "a", "probability": 1.0}}
    assert arms["published"] == 1


def opinion() -> FeedbackReceived:
    return FeedbackReceived(
        event_id=ids.new_id(CLOCK.now()),
        inference_id=ids.new_id(CLOCK.now()),
        caller="key_1",
        source="rule",
        rater="rule_1",
        score=1.0,
    )
