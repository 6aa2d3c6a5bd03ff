"""Open dead letters with the vault: to show one to an operator, or to make an event of it again.

In:   dead letters, a home's vault key and key store
Out:  contents as plain values for JSON; for `redrive`, messages and the events that the flusher
      makes of its records now
Refuses: a vault key that is missing or that others may read, a letter that does not open (BadState)
Never: asks who is calling: `access.Guard` does, and comes first
"""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from afterbay.lakehouse.deadletters import DeadLetter
from afterbay.platform.cleaning import Cleaner
from afterbay.platform.home import Home
from afterbay.platform.records import unpack
from afterbay.schemas.clock import Clock
from afterbay.schemas.codec import decode_record
from afterbay.schemas.errors import Rejected
from afterbay.schemas.events import DeadLetter as DeadLetterEvent
from afterbay.schemas.events import Event
from afterbay.schemas.topics import TOPICS
from afterbay.streams.keys.sealer import Sealer
from afterbay.streams.keys.store import KeyStore
from afterbay.streams.keys.vault import Vault
from afterbay.streams.letters import FLUSHER, Original, check_stage, open_message, open_record
from afterbay.streams.pii import Redactor
from afterbay.streams.redrive import SOURCE, Openers


class Opener:
    """The vault and the key store of one home, for as long as a command runs."""

    def __init__(self, home: Home, clock: Clock) -> None:
        self._vault = Vault.load(home.keys)
        self._store = KeyStore(home.keystore)
        self._sealer = Sealer(self._vault.public(), self._store, SOURCE, clock)
        self._cleaner = Cleaner(Redactor(), self._sealer, clock)

    def contents(self, letter: DeadLetter) -> dict[str, Any]:
        """What the letter holds, in clear."""
        check_stage(letter)
        if letter.stage == FLUSHER:
            return _record(open_record(self._vault, self._store, letter))
        return _message(letter.source_topic, open_message(self._vault, self._store, letter))

    def openers(self) -> Openers:
        """What `redrive` needs."""
        return Openers(message=self._original, event=self._event)

    def close(self) -> None:
        """Let go of the key store."""
        self._store.close()

    def _original(self, letter: DeadLetter) -> Original:
        check_stage(letter)
        return open_message(self._vault, self._store, letter)

    def _event(self, letter: DeadLetter) -> Event | str:
        """The event a record makes now, sealed anew; the record itself is clear and stays here."""
        (event,) = self._cleaner.clean([open_record(self._vault, self._store, letter)])
        if isinstance(event, DeadLetterEvent):
            return f"the flusher would refuse its record again ({event.reason})"
        self._sealer.commit()
        return event


def _message(topic: str, original: Original) -> dict[str, Any]:
    event = decode_record(original.value, topic) if topic in TOPICS else None
    return {
        "key": _text(original.key),
        "headers": [[name, _text(value)] for name, value in original.headers],
        "event": None if isinstance(event, Rejected) else event,
        "value_base64": _base64(original.value),
    }


def _record(data: bytes) -> dict[str, Any]:
    try:
        return {"record": msgspec.to_builtins(unpack(data))}
    except ValueError:
        return {"record": None, "value_base64": _base64(data)}


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "backslashreplace")


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode("ascii")
