"""Archive rows: what they cover, what they keep, and the events that come back out of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from afterbay.lakehouse import archive, merkle
from afterbay.lakehouse.archive import Message
from afterbay.lakehouse.lake import Lake
from afterbay.lakehouse.positions import SourcePartition
from afterbay.schemas.codec import newest
from afterbay.schemas.errors import BadState
from tests.support.whole_lake import DAY_ONE, FEEDBACK, INFERENCES, WholeLake, filled

SOURCE = SourcePartition(INFERENCES, "tid", 3)
AT_MS = 1_772_409_599_500  # 2026-03-01T23:59:59.5Z
VALUE = newest(INFERENCES).header + b"body"


def message(offset: int, **values: Any) -> Message:
    whole: dict[str, Any] = {
        "timestamp_ms": AT_MS,
        "key": b"k",
        "headers": (("a", b"1"), ("b", None)),
        "value": VALUE,
        "event_id": f"e{offset}",
    }
    return Message(offset, **(whole | values))


def test_rows_say_what_they_cover() -> None:
    rows = archive.rows(SOURCE, 5, [message(7), message(8), message(11)])
    assert rows.column("_offset").to_pylist() == [7, 8, 11]
    assert rows.column("_gap_before").to_pylist() == [2, 0, 2]


def test_a_row_keeps_all_that_its_leaf_is_made_of() -> None:
    row = archive.rows(SOURCE, 7, [message(7)]).to_pylist()[0]
    headers = [(h["name"], h["value"]) for h in row["_headers"]]
    hashes = (
        sha256(row["_key"]).digest(),
        merkle.headers_hash(headers),
        sha256(row["_bytes"]).digest(),
    )
    timestamp = round(row["_ts"].timestamp() * 1000)
    data = merkle.leaf_data(row["_topic_id"], row["_partition"], row["_offset"], timestamp, hashes)
    assert row["_leaf"] == merkle.leaf_hash(data)
    assert (row["_kind"], row["date"], row["_event_id"]) == ("event", "2026-03-01", "e7")
    assert row["_fingerprint"] == newest(INFERENCES).fingerprint


def test_a_dead_message_leaves_hashes_and_a_leaf_and_nothing_of_itself() -> None:
    row = archive.rows(SOURCE, 7, [message(7, dead=True, event_id=None)]).to_pylist()[0]
    assert row["_kind"] == "dead"
    assert [row[n] for n in ("_key", "_headers", "_bytes", "_event_id")] == [None] * 4
    assert row["_bytes_sha256"] == sha256(VALUE).digest()
    assert row["_key_sha256"] == sha256(b"k").digest()
    hashes = (row["_key_sha256"], row["_headers_sha256"], row["_bytes_sha256"])
    assert row["_leaf"] == merkle.leaf_hash(merkle.leaf_data("tid", 3, 7, AT_MS, hashes))


def test_a_tombstone_can_be_archived_as_dead() -> None:
    dead = message(7, dead=True, value=None, key=None, headers=(), event_id=None)
    row = archive.rows(SOURCE, 7, [dead]).to_pylist()[0]
    assert row["_bytes_sha256"] == sha256(b"").digest()


def test_a_gap_row_covers_up_to_the_end_and_has_no_leaf() -> None:
    row = archive.gap_row(SOURCE, 8, 12, DAY_ONE).to_pylist()[0]
    assert (row["_offset"], row["_gap_before"], row["_kind"]) == (11, 3, "gap")
    assert row["_leaf"] is None
    assert row["_bytes"] is None


def test_messages_out_of_order_and_empty_gaps_are_refused() -> None:
    with pytest.raises(BadState, match="offset order"):
        archive.rows(SOURCE, 0, [message(3), message(3)])
    with pytest.raises(BadState, match="offset order"):
        archive.rows(SOURCE, 5, [message(4)])
    with pytest.raises(BadState, match="no gap"):
        archive.gap_row(SOURCE, 5, 5, DAY_ONE)


@pytest.fixture
def whole(tmp_path: Path) -> WholeLake:
    return filled(Lake(str(tmp_path)))


def test_replay_gives_back_every_event_as_it_was_sent(whole: WholeLake) -> None:
    found = list(archive.replay(whole.lake, DAY_ONE, DAY_ONE + timedelta(hours=1)))
    events = {r["event"]["event_id"]: r["event"] for r in found if r["event"] is not None}
    for sent in whole.rows["feedback"]:
        event = events[sent["event_id"]]
        assert event == {name: sent[name] for name in event}
    assert (
        len(events)
        == sum(
            len(rows)
            for name, rows in whole.rows.items()
            if name not in ("experience", "deadletter")
        )
        + 3
    )
    assert [r["kind"] for r in found if r["event"] is None] == ["dead"]
    assert found == sorted(found, key=lambda r: (r["ts"], r["topic"], r["partition"], r["offset"]))


def test_replay_keeps_to_its_window_and_topic(whole: WholeLake) -> None:
    start, end = datetime(2026, 3, 2, tzinfo=UTC), datetime(2026, 3, 3, tzinfo=UTC)
    found = list(archive.replay(whole.lake, start, end, topic=FEEDBACK))
    assert {r["topic"] for r in found} == {FEEDBACK}
    assert all(start <= r["ts"] < end for r in found)
    first = found[0]["ts"]
    assert list(archive.replay(whole.lake, start, first)) == []
