"""What a dead letter holds, sealed: a message of a topic as it came, or a record of the L1 ring.

In:   the message or the record; later its row of table `deadletter`, the vault and the key store
Out:  `Sealed`; the message or record again
Refuses: as UnknownKey or SealBroken, what `open_sealed` refuses; as BadState, contents of a form
      that is not known here
Never: holds the contents anywhere but in memory
"""

from __future__ import annotations

import zlib
from datetime import datetime
from typing import Protocol

import msgspec

from afterbay.lakehouse.archive import Message
from afterbay.lakehouse.deadletters import DeadLetter
from afterbay.lakehouse.merkle import Header
from afterbay.schemas.errors import BadState
from afterbay.streams.keys.sealer import Place, Sealed, UnknownKey, open_sealed
from afterbay.streams.keys.store import KeyStore
from afterbay.streams.keys.vault import Vault

SINK, FLUSHER = "sink", "flusher"
"""Stages that write dead letters."""


class Seals(Protocol):
    """What a dead letter needs of a sealer; `keys.sealer.Sealer`."""

    def seal(self, place: Place, plaintext: bytes) -> Sealed:
        """`plaintext`, readable with the vault only."""
        ...

    def commit(self) -> None:
        """Put the records of new keys on disk."""
        ...


class Original(msgspec.Struct, frozen=True, array_like=True):
    """One message as it came, so that it can be sent again just so. Made by the sink."""

    key: bytes | None
    headers: tuple[Header, ...]
    value: bytes | None
    """None for a tombstone."""


def daily_subject(at: datetime) -> str:
    """Whose key seals what the sink refused on that day: nobody's, it is not known whose it is."""
    return f"deadletter:{at:%Y-%m-%d}"


def seal_message(sealer: Seals, event_id: str, subject: str, message: Message) -> Sealed:
    """A message that the sink refused, with its key and headers."""
    original = Original(message.key, message.headers, message.value)
    return sealer.seal(_of_message(event_id, subject), msgspec.msgpack.encode(original))


def seal_record(sealer: Seals, event_id: str, owner: str, data: bytes) -> Sealed:
    """A record that the flusher could not clean."""
    # compressed first: a record of the largest size must still fit a message as base64
    return sealer.seal(_of_record(event_id, owner), zlib.compress(data))


def open_message(vault: Vault, store: KeyStore, letter: DeadLetter) -> Original:
    """The message that the sink sealed."""
    place = _of_message(letter.event_id, _sealed_under(store, letter))
    opened = open_sealed(vault, store, place, Sealed(letter.key_id, letter.sealed))
    try:
        return msgspec.msgpack.decode(opened, type=Original)
    except msgspec.DecodeError:
        raise _other(letter, "a message with its key and headers") from None


def open_record(vault: Vault, store: KeyStore, letter: DeadLetter) -> bytes:
    """The record that the flusher sealed."""
    place = _of_record(letter.event_id, _sealed_under(store, letter))
    opened = open_sealed(vault, store, place, Sealed(letter.key_id, letter.sealed))
    try:
        return zlib.decompress(opened)
    except zlib.error:
        raise _other(letter, "a compressed ring record") from None


def check_stage(letter: DeadLetter) -> None:
    """BadState for a stage of which it is not known how it seals."""
    if letter.stage not in (SINK, FLUSHER):
        raise BadState(
            f"dead letter {letter.event_id}: stage {letter.stage} is not known here; expected "
            f"{SINK} or {FLUSHER}: a newer release wrote it, use that one"
        )


def _sealed_under(store: KeyStore, letter: DeadLetter) -> str:
    """The subject in its place: a letter without a person's is sealed under another name."""
    record = store.data_key(letter.key_id)
    if record is None:
        raise UnknownKey(
            f"dead letter {letter.event_id}: its key {letter.key_id} has no record; use the key "
            "store that was there when it was sealed"
        )
    return record.subject


def _other(letter: DeadLetter, expected: str) -> BadState:
    return BadState(
        f"dead letter {letter.event_id}: it opens and does not hold {expected}; another release "
        "wrote it, use that one"
    )


def _of_message(event_id: str, subject: str) -> Place:
    return Place(event_id, "message", 0, "dead", subject)


def _of_record(event_id: str, owner: str) -> Place:
    return Place(event_id, "sealed", 0, "record", owner)
