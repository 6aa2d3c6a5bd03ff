"""Many writers, many dates, no room: nothing is dropped and nothing doubled."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from afterbay.lakehouse import tables
from afterbay.lakehouse.lake import Lake
from afterbay.lakehouse.prove import prove
from afterbay.schemas import ids
from afterbay.schemas.events import PolicyLoaded
from afterbay.streams.kafka import KafkaAddress
from tests.support import writers
from tests.support.agents import Agents, all_in, prove_once, wait_until
from tests.support.events import Sender, inference

DATES = 200


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake(str(tmp_path / "lake"))
    tables.ensure(lake)
    return lake


def held(lake: Lake) -> list[tuple[int, int]]:
    """Partition and offset of every row."""
    names = ["_partition", "_offset"]
    found = tables.open(lake, writers.TABLE).to_pyarrow_table(columns=names)
    return sorted((row["_partition"], row["_offset"]) for row in found.to_pylist())


def test_ten_processes_that_write_one_table_at_once_drop_nothing(lake: Lake) -> None:
    assert writers.together(writers.append_many, lake, 10) == [100] * 10
    assert held(lake) == [(writer, offset) for writer in range(10) for offset in range(100)]


def test_of_two_processes_that_read_the_same_version_one_writes_and_one_is_fenced(
    lake: Lake,
) -> None:
    written = sum(writers.together(writers.race, lake, 2))
    assert 50 <= written <= 60
    assert held(lake) == [(0, offset) for offset in range(written)]


def loaded(days_ago: int) -> PolicyLoaded:
    """An event of a topic that is kept for ever, so that its date may lie far back."""
    at = datetime.now(UTC) - timedelta(days=days_ago)
    return PolicyLoaded(
        event_id=ids.new_id(at),
        node_id=f"node-{days_ago}",
        policy="bank-agent",
        snapshot_id="s1",
        digest="d1",
        load_ms=1.0,
    )


def test_a_backlog_of_two_hundred_dates_goes_in_with_one_flush(
    tmp_path: Path, log: KafkaAddress
) -> None:
    agents = Agents(tmp_path / "home", log, {"AFTERBAY_FLUSH_S": "5"})
    sent = [loaded(days) for days in range(DATES)]
    Sender(log).send(*sent)
    before = tables.open(agents.lake, "loaded").version()
    wanted = [event.event_id for event in sent]
    with agents.running("sink"):
        all_in(agents, "loaded", "event_id", wanted)
        assert tables.open(agents.lake, "loaded").version() == before + 1
    assert len(set(agents.column("loaded", "date"))) == DATES
    prove_once(agents, "loaded", "event_id", wanted)


@contextmanager
def small_disk(place: Path, size: str) -> Iterator[None]:
    """A file system of its own at `place`; skips where that is not allowed."""
    place.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"a full disk needs a mount of its own: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk_delays_events_and_costs_none(tmp_path: Path, log: KafkaAddress) -> None:
    chance = random.Random(7)  # noqa: S311  # text that does not compress, the same each time
    sender = Sender(log)
    wanted: list[str] = []
    place = tmp_path / "home" / "lake"
    with small_disk(place, "4m"):
        agents = Agents(tmp_path / "home", log)
        said = agents.home / "run" / "sink.log"
        with agents.running("sink"):
            for number in range(20):
                text = "".join(chr(chance.randrange(0x4E00, 0x9FA5)) for _ in range(60_000))
                event = inference(number, response=text)
                sender.send(event)
                wanted.append(event.event_id)
            wait_until(
                "the sink says that it cannot write", lambda: "append again" in said.read_text()
            )
            subprocess.run(["mount", "-o", "remount,size=64m", str(place)], check=True)
            all_in(agents, "inference", "event_id", wanted)
        prove_once(agents, "inference", "event_id", wanted)
        assert prove(agents.lake).differences == ()
