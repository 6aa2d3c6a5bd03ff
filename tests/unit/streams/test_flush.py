"""One flush of the sink, on real tables: what the archive holds and what the tables hold agree."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from afterbay.lakehouse import archive, tables
from afterbay.lakehouse.archive import Message
from afterbay.lakehouse.lake import Lake
from afterbay.lakehouse.ledger import TableLedger
from afterbay.lakehouse.positions import SourcePartition
from afterbay.lakehouse.prove import prove
from afterbay.schemas import ids
from afterbay.schemas.codec import decode_record, encode
from afterbay.schemas.events import FeedbackReceived
from afterbay.streams.flush import Held, Share, Writer
from afterbay.streams.intake import take_in
from afterbay.streams.keys import ensure_keys
from afterbay.streams.keys.sealer import Place, Sealed, Sealer, open_sealed
from afterbay.streams.keys.store import KeyStore
from afterbay.streams.keys.vault import Vault, VaultPublic
from afterbay.streams.metrics import Metrics
from afterbay.streams.pii import Redactor
from tests.support.manual_clock import ManualClock

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SOURCE = SourcePartition("feedback.received.v2", "id", 0)
PHONE = "13812345678"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    found = Lake(str(tmp_path / "lake"))
    tables.ensure(found)
    return found


@pytest.fixture
def store(tmp_path: Path) -> KeyStore:
    return KeyStore(tmp_path / "keystore.sqlite")


@pytest.fixture
def sealer(tmp_path: Path, store: KeyStore) -> Sealer:
    ensure_keys(tmp_path / "keys")
    return Sealer(VaultPublic.load(tmp_path / "keys"), store, "sink", ManualClock(NOW))


def messages() -> tuple[Message, ...]:
    texts = ["fine", f"call {PHONE}", "thanks"]
    stamp = int(NOW.timestamp() * 1000)
    return tuple(
        Message(n, stamp, b"k", (), encode(feedback(text)), None) for n, text in enumerate(texts)
    )


def feedback(comment: str) -> FeedbackReceived:
    return FeedbackReceived(
        event_id=ids.new_id(NOW),
        inference_id=ids.new_id(NOW),
        caller="c",
        source="person",
        rater="r",
        comment=comment,
        subject="s" * 32,
    )


def written(lake: Lake, sealer: Sealer, came: tuple[Message, ...], archived: int) -> None:
    """One flush of `came`, by an owner whose archive stands at `archived`."""
    held = Held(SOURCE, {"archive": archived, "feedback": 0, "deadletter": 0})
    writer = Writer(lake, Redactor(), sealer, ManualClock(NOW), Metrics("sink"))
    assert writer.write([Share(held, came, len(came), gap=False, all_tables=True)]) == frozenset()


def redacted_rows(lake: Lake) -> tuple[dict[str, Any], dict[str, Any]]:
    """The redacted event as the table has it, and as the archive has it."""
    rows = tables.open(lake, "feedback").to_pyarrow_table().to_pylist()
    (row,) = [r for r in rows if r["pii"]]
    stored = archive.redacted(lake, SOURCE, 0, 9)
    event = decode_record(stored[row["_offset"]], SOURCE.topic)
    assert isinstance(event, dict)
    return {name: row[name] for name in event}, event


def test_a_redacted_event_is_one_and_the_same_in_table_and_archive_and_opens(
    lake: Lake, sealer: Sealer, store: KeyStore, tmp_path: Path
) -> None:
    written(lake, sealer, messages(), archived=0)
    row, event = redacted_rows(lake)
    assert row == event
    assert prove(lake).differences == ()
    (finding,) = event["pii"]
    place = Place(event["event_id"], "comment", 0, "phone", "s" * 32)
    sealed = Sealed(finding["key_id"], finding["ciphertext"])
    vault = Vault.load(tmp_path / "keys")
    assert open_sealed(vault, store, place, sealed) == PHONE.encode()


def test_a_table_that_fell_behind_the_archive_takes_what_was_sealed_then(
    lake: Lake, sealer: Sealer
) -> None:
    came = messages()
    first = take_in(SOURCE, came, Redactor(), sealer)
    rows = archive.rows(SOURCE, 0, first.archived)
    TableLedger(lake, "archive", "sink").append(rows, {SOURCE: 0}, {SOURCE: len(came)})
    written(lake, sealer, came, archived=len(came))
    row, event = redacted_rows(lake)
    assert row == event
    assert prove(lake).differences == ()
