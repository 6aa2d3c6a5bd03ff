"""Seal values so that the process that sealed them cannot read them back once the hour is over.

In:   a value and its place (event, field, ordinal, kind, subject)
Out:  `Sealed`: the data key's id and base64 of nonce (12 B), AES-256-GCM ciphertext and tag
Refuses: as SealBroken: a sealed value that was altered or stands in another place
Never: keeps a key past its hour; writes a key in clear; holds the vault's private key

A data key is made per (subject, process, hour) and wrapped under the hour key of (process, hour);
that one is sealed to the vault's public key (HPKE). `commit` puts the records into the key store
and comes before the events leave. Both layers bind what they hold to its identity.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Callable
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from afterbay.schemas import ids
from afterbay.schemas.clock import Clock, micros
from afterbay.schemas.errors import BadState
from afterbay.streams.keys.store import DataKey, HourKey, KeyStore
from afterbay.streams.keys.vault import SealBroken, Vault, VaultPublic

VALUE_FORMAT = "afterbay/value/1"
DATA_KEY_FORMAT = "afterbay/data-key/1"
HOUR_KEY_FORMAT = "afterbay/hour-key/1"
NONCE_BYTES = 12
TAG_BYTES = 16
KEY_BYTES = 32
_HOUR_US = 3_600_000_000
_MAX_LIVE = 20_000
"""Data keys held at once; past that the oldest is dropped and its subject gets a new one."""


class UnknownKey(BadState):
    """No record of this data key: it was never committed, or belongs to another key store."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a sealed value belongs; it opens nowhere else."""

    event_id: str
    """Event that carries it."""
    field: str
    """Field of the event it was cut from."""
    ordinal: int
    """Number of the finding in the event."""
    kind: str
    """Kind of personal data."""
    subject: str
    """Pseudonym of the person, `inference:<id>` or `quarantine`."""


@dataclass(frozen=True, slots=True)
class Sealed:
    """A sealed value. Made by the sealer, carried by findings and dead letters."""

    key_id: str
    """Data key record that opens it."""
    ciphertext: str
    """Base64 of nonce, ciphertext and tag."""


@dataclass(frozen=True, slots=True)
class _Live:
    """A key in memory; its cipher object is the only copy of it that is ours."""

    key_id: str
    cipher: AESGCM


class Sealer:
    """Seals for one process. Holds the keys of the hour that is running and no others."""

    def __init__(
        self,
        vault: VaultPublic,
        store: KeyStore,
        process: str,
        clock: Clock,
        entropy: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self._vault = vault
        self._store = store
        self._process = process
        self._clock = clock
        self._entropy = entropy
        self._hour = -1
        self._hour_key: _Live | None = None
        self._live: dict[str, _Live] = {}
        self._hour_records: list[HourKey] = []
        self._data_records: list[DataKey] = []

    def seal(self, place: Place, plaintext: bytes) -> Sealed:
        """`plaintext`, readable with the vault only; its key record is due at the next `commit`."""
        self.expire()
        key = self._live.get(place.subject) or self._new_data_key(place.subject)
        sealed = _encrypt(
            key.cipher, self._entropy(NONCE_BYTES), plaintext, _of_value(place, key.key_id)
        )
        return Sealed(key.key_id, base64.b64encode(sealed).decode("ascii"))

    def commit(self) -> None:
        """Put the records of new keys on disk; Unavailable leaves them due, so try again."""
        self.expire()
        if self._data_records:
            self._store.add(self._hour_records, self._data_records)
            self._hour_records, self._data_records = [], []

    def expire(self) -> None:
        """Drop every key of an hour that is over; to be called now and then while idle too."""
        hour = micros(self._clock.now()) // _HOUR_US
        if hour != self._hour:
            self._hour, self._hour_key = hour, None
            self._live.clear()

    def _new_data_key(self, subject: str) -> _Live:
        hour_key = self._hour_key or self._new_hour_key()
        key_id, key = ids.new_id(self._clock.now()), self._entropy(KEY_BYTES)
        wrapped = _encrypt(
            hour_key.cipher,
            self._entropy(NONCE_BYTES),
            key,
            bound(DATA_KEY_FORMAT, key_id, subject, hour_key.key_id),
        )
        self._data_records.append(DataKey(key_id, subject, hour_key.key_id, wrapped))
        if len(self._live) >= _MAX_LIVE:
            del self._live[next(iter(self._live))]
        live = self._live[subject] = _Live(key_id, AESGCM(key))
        return live

    def _new_hour_key(self) -> _Live:
        hour_key_id, key = ids.new_id(self._clock.now()), self._entropy(KEY_BYTES)
        sealed = self._vault.seal(key, _of_hour(hour_key_id, self._process, self._hour))
        self._hour_records.append(HourKey(hour_key_id, self._process, self._hour, sealed))
        self._hour_key = _Live(hour_key_id, AESGCM(key))
        return self._hour_key


def open_sealed(vault: Vault, store: KeyStore, place: Place, sealed: Sealed) -> bytes:
    """What was sealed at `place`; UnknownKey without its record, SealBroken if anything differs."""
    record = store.data_key(sealed.key_id)
    hour_key = None if record is None else store.hour_key(record.hour_key_id)
    if record is None or hour_key is None:
        raise UnknownKey(
            f"data key {sealed.key_id}: no record; use the key store that was there when the "
            "event was sealed"
        )
    info = _of_hour(hour_key.hour_key_id, hour_key.process, hour_key.hour)
    outer = vault.open(hour_key.sealed, info)
    of_key = bound(DATA_KEY_FORMAT, record.key_id, record.subject, record.hour_key_id)
    key = _decrypt(outer, record.wrapped, of_key, f"data key {record.key_id}")
    where = f"finding {place.ordinal} of event {place.event_id}"
    return _decrypt(key, _decoded(sealed, where), _of_value(place, record.key_id), where)


def bound(*parts: str) -> bytes:
    """Parts as bytes that no other parts give: each with its length (4 B, big-endian) before it."""
    encoded = [part.encode("utf-8", "surrogatepass") for part in parts]
    return b"".join([len(part).to_bytes(4, "big") + part for part in encoded])


def _of_value(place: Place, key_id: str) -> bytes:
    return bound(
        VALUE_FORMAT,
        place.event_id,
        place.field,
        str(place.ordinal),
        place.kind,
        place.subject,
        key_id,
    )


def _of_hour(hour_key_id: str, process: str, hour: int) -> bytes:
    return bound(HOUR_KEY_FORMAT, hour_key_id, process, str(hour))


def _encrypt(cipher: AESGCM, nonce: bytes, plaintext: bytes, associated: bytes) -> bytes:
    return nonce + cipher.encrypt(nonce, plaintext, associated)


def _decrypt(key: bytes, sealed: bytes, associated: bytes, where: str) -> bytes:
    if len(sealed) < NONCE_BYTES + TAG_BYTES:
        raise SealBroken(f"{where}: {len(sealed)} bytes are too short for a sealed value")
    try:
        return AESGCM(key).decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], associated)
    except InvalidTag:
        raise SealBroken(
            f"{where}: does not open; it was altered, or moved from another place or subject"
        ) from None


def _decoded(sealed: Sealed, where: str) -> bytes:
    try:
        return base64.b64decode(sealed.ciphertext, validate=True)
    except binascii.Error:
        raise SealBroken(f"{where}: the sealed value is no base64") from None
