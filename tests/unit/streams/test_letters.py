"""What a dead letter seals comes out as it went in, and redrive says what can be sent of it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from afterbay.lakehouse.archive import Message
from afterbay.lakehouse.deadletters import REDRIVE_HEADER, DeadLetter
from afterbay.schemas.clock import SystemClock
from afterbay.schemas.errors import BadState
from afterbay.schemas.events import Cursor
from afterbay.streams.kafka import KafkaAddress
from afterbay.streams.keys import ensure_keys
from afterbay.streams.keys.sealer import Place, Sealed, Sealer, UnknownKey
from afterbay.streams.keys.store import KeyStore
from afterbay.streams.keys.vault import SealBroken, Vault
from afterbay.streams.letters import (
    FLUSHER,
    SINK,
    Original,
    daily_subject,
    open_message,
    open_record,
    seal_message,
    seal_record,
)
from afterbay.streams.outbox import Outbox, Raw
from afterbay.streams.redrive import _groups, _of_message

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
TOPIC = "feedback.received.v2"


class Desk:
    """A sealer and the vault of one home."""

    def __init__(self, folder: Path) -> None:
        ensure_keys(folder)
        self.vault = Vault.load(folder)
        self.store = KeyStore(folder / "store.sqlite")
        self.sealer = Sealer(self.vault.public(), self.store, "sink", SystemClock())


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.store.close()


def letter(sealed: Sealed, stage: str = SINK, event_id: str = "e") -> DeadLetter:
    return DeadLetter(
        event_id=event_id,
        at=AT,
        source_topic=TOPIC,
        reason="magic",
        stage=stage,
        key_id=sealed.key_id,
        sealed=sealed.ciphertext,
    )


@pytest.mark.parametrize("value", [b"bytes \xff", b"", None])
@pytest.mark.parametrize("key", [b"k\x00", None])
def test_a_message_comes_out_with_its_key_and_headers(
    desk: Desk, key: bytes | None, value: bytes | None
) -> None:
    headers = (("h", b"v"), ("h", None))
    message = Message(3, 0, key, headers, value, None)
    sealed = seal_message(desk.sealer, "e", daily_subject(AT), message)
    desk.sealer.commit()
    assert open_message(desk.vault, desk.store, letter(sealed)) == Original(key, headers, value)
    with pytest.raises(SealBroken):
        open_message(desk.vault, desk.store, letter(sealed, event_id="another"))


def test_a_record_comes_out_although_its_letter_names_no_owner(desk: Desk) -> None:
    sealed = seal_record(desk.sealer, "e", "inference:1", b"record" * 100)
    desk.sealer.commit()
    assert open_record(desk.vault, desk.store, letter(sealed, FLUSHER)) == b"record" * 100
    assert len(sealed.ciphertext) < 600


def test_contents_of_an_older_form_are_refused_without_showing_them(desk: Desk) -> None:
    sealed = desk.sealer.seal(Place("e", "message", 0, "dead", daily_subject(AT)), b"13812345678")
    desk.sealer.commit()
    with pytest.raises(BadState, match="another release wrote it") as refused:
        open_message(desk.vault, desk.store, letter(sealed))
    assert "138" not in str(refused.value)


def test_without_its_key_record_a_letter_says_which_key_store_is_needed(desk: Desk) -> None:
    sealed = seal_record(desk.sealer, "e", "quarantine", b"record")
    with pytest.raises(UnknownKey, match="use the key store that was there"):
        open_record(desk.vault, desk.store, letter(sealed, FLUSHER))


def test_a_message_goes_out_as_it_came_with_our_header_once() -> None:
    came = Original(b"k", (("h", b"v"), (REDRIVE_HEADER, b"older")), b"value")
    sent = _of_message(letter(Sealed("k", "")), came)
    assert sent == Raw(TOPIC, b"k", b"value", (("h", b"v"), (REDRIVE_HEADER, b"e")))


@pytest.mark.parametrize(("value", "why"), [(None, "tombstone"), (bytes(3_000_000), "3000000")])
def test_what_no_topic_takes_is_refused_with_its_reason(value: bytes | None, why: str) -> None:
    refused = _of_message(letter(Sealed("k", "")), Original(None, (), value))
    assert isinstance(refused, str)
    assert why in refused


def test_one_transaction_takes_so_many_letters_and_so_many_bytes() -> None:
    small = [letter(Sealed("k", "x")) for _ in range(250)]
    large = [letter(Sealed("k", "x" * 3_000_000)) for _ in range(3)]
    assert [len(group) for group in _groups(small)] == [100, 100, 50]
    assert [len(group) for group in _groups(large)] == [1, 1, 1]
    assert list(_groups([])) == []


def test_an_outbox_moves_its_own_cursor_and_those_of_its_parts_only() -> None:
    outbox = Outbox("redrive", KafkaAddress("127.0.0.1:1"), SystemClock())
    with pytest.raises(ValueError, match="cursor of redriven/1"):
        outbox.commit([], Cursor(source="redrive"), [Cursor(source="redriven/1")])
