"""Sealing: only the vault opens, only at its place, and nobody keeps a key past its hour."""

import base64
import gc
import hashlib
import hmac
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from afterbay.schemas.errors import BadState, Unavailable
from afterbay.streams.keys.sealer import (
    Place,
    Sealed,
    Sealer,
    UnknownKey,
    _decrypt,
    _encrypt,
    _Live,
    bound,
    open_sealed,
)
from afterbay.streams.keys.store import KeyStore
from afterbay.streams.keys.vault import SealBroken, Vault, VaultPublic
from tests.support.manual_clock import ManualClock

PLACE = Place("event-1", "prompt", 0, "phone", "subject-1")
VALUE = b"13812345678"


class Room:
    """A vault, a key store and a sealer of one process."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        self.path = folder / "keystore.sqlite"
        self.store = KeyStore(self.path)
        self.vault = Vault(X25519PrivateKey.generate())
        self.sealer = Sealer(self.vault.public(), self.store, "flusher", self.clock)

    def open(self, sealed: Sealed, place: Place = PLACE) -> bytes:
        return open_sealed(self.vault, self.store, place, sealed)


@pytest.fixture
def room(tmp_path: Path) -> Room:
    return Room(tmp_path)


def test_the_vault_opens_what_was_sealed_at_its_place(room: Room) -> None:
    sealed = room.sealer.seal(PLACE, VALUE)
    room.sealer.commit()
    assert room.open(sealed) == VALUE


def test_nothing_opens_before_its_key_record_is_committed(room: Room) -> None:
    sealed = room.sealer.seal(PLACE, VALUE)
    with pytest.raises(UnknownKey):
        room.open(sealed)


@pytest.mark.parametrize(
    "elsewhere",
    [
        replace(PLACE, event_id="event-2"),
        replace(PLACE, field="response"),
        replace(PLACE, ordinal=1),
        replace(PLACE, kind="bank_card"),
        replace(PLACE, subject="subject-2"),
    ],
)
def test_a_value_moved_to_another_place_does_not_open(room: Room, elsewhere: Place) -> None:
    sealed = room.sealer.seal(PLACE, VALUE)
    room.sealer.commit()
    with pytest.raises(SealBroken) as caught:
        room.open(sealed, elsewhere)
    assert VALUE.decode() not in str(caught.value)


def test_two_values_swapped_between_ordinals_or_subjects_do_not_open(room: Room) -> None:
    places = (PLACE, replace(PLACE, ordinal=1), replace(PLACE, subject="subject-2"))
    sealed = [room.sealer.seal(place, VALUE) for place in places]
    room.sealer.commit()
    for at, place in enumerate(places):
        for other, value in enumerate(sealed):
            if at == other:
                assert room.open(value, place) == VALUE
            else:
                with pytest.raises(SealBroken):
                    room.open(value, place)


def test_a_key_id_pointed_at_another_record_does_not_open(room: Room) -> None:
    mine = room.sealer.seal(PLACE, VALUE)
    other = room.sealer.seal(replace(PLACE, subject="subject-2"), VALUE)
    room.sealer.commit()
    with pytest.raises(SealBroken):
        room.open(replace(mine, key_id=other.key_id))


def test_a_flipped_bit_anywhere_is_noticed(room: Room) -> None:
    sealed = room.sealer.seal(PLACE, VALUE)
    room.sealer.commit()
    raw = base64.b64decode(sealed.ciphertext)
    for bit in range(len(raw) * 8):
        broken = bytearray(raw)
        broken[bit // 8] ^= 1 << bit % 8
        with pytest.raises(SealBroken):
            room.open(replace(sealed, ciphertext=base64.b64encode(broken).decode()))


@pytest.mark.parametrize("column", ["hour_key.sealed", "data_key.wrapped"])
def test_a_flipped_bit_in_a_key_record_is_noticed(room: Room, column: str) -> None:
    sealed = room.sealer.seal(PLACE, VALUE)
    room.sealer.commit()
    table, name = column.split(".")
    with sqlite3.connect(room.path) as db:
        (raw,) = db.execute(f"SELECT {name} FROM {table}").fetchone()  # noqa: S608  # two literals
        db.execute(f"UPDATE {table} SET {name} = ?", (raw[:-1] + bytes([raw[-1] ^ 1]),))  # noqa: S608
    db.close()
    with pytest.raises(SealBroken):
        room.open(sealed)


@pytest.mark.parametrize("ciphertext", ["", "AAAA", "!!", base64.b64encode(bytes(27)).decode()])
def test_what_is_too_short_for_nonce_and_tag_is_refused(room: Room, ciphertext: str) -> None:
    sealed = room.sealer.seal(PLACE, VALUE)
    room.sealer.commit()
    with pytest.raises(SealBroken):
        room.open(replace(sealed, ciphertext=ciphertext))


def test_another_vault_opens_nothing(room: Room) -> None:
    sealed = room.sealer.seal(PLACE, VALUE)
    room.sealer.commit()
    with pytest.raises(SealBroken):
        open_sealed(Vault(X25519PrivateKey.generate()), room.store, PLACE, sealed)


def test_one_key_per_subject_and_hour_and_never_a_nonce_twice(room: Room) -> None:
    values = [room.sealer.seal(PLACE, VALUE) for _ in range(50)]
    other = room.sealer.seal(replace(PLACE, subject="subject-2"), VALUE)
    assert len({v.key_id for v in values}) == 1
    assert other.key_id != values[0].key_id
    assert len({base64.b64decode(v.ciphertext)[:12] for v in values}) == 50


def live_keys() -> list[_Live]:
    """Keys that anything in this process still refers to."""
    gc.collect()
    # not isinstance: that asks the object itself, and other libraries' objects answer with warnings
    return [thing for thing in gc.get_objects() if type(thing) is _Live]


def test_after_its_hour_the_process_holds_no_key_it_used(room: Room) -> None:
    kept = live_keys()  # of earlier tests; held here, so that none of their ids is used again
    others = {id(key) for key in kept}
    first = room.sealer.seal(PLACE, VALUE)
    room.sealer.commit()
    assert (
        len([key for key in live_keys() if id(key) not in others]) == 2
    )  # the hour's, the subject's
    room.clock.advance(3_600)
    room.sealer.expire()
    assert [key.key_id for key in live_keys() if id(key) not in others] == []
    assert room.sealer.seal(PLACE, VALUE).key_id != first.key_id


def test_a_key_whose_hour_ends_before_the_commit_is_still_recorded(room: Room) -> None:
    sealed = room.sealer.seal(PLACE, VALUE)
    room.clock.advance(3_600)
    room.sealer.commit()
    assert room.open(sealed) == VALUE


def test_the_key_store_holds_no_key_and_no_value_in_clear(tmp_path: Path) -> None:
    drawn: list[bytes] = []

    def entropy(size: int) -> bytes:
        drawn.append(hashlib.sha256(bytes([len(drawn)])).digest()[:size])
        return drawn[-1]

    store = KeyStore(tmp_path / "keystore.sqlite")
    sealer = Sealer(
        Vault(X25519PrivateKey.generate()).public(), store, "flusher", ManualClock(), entropy
    )
    sealer.seal(PLACE, VALUE)
    sealer.commit()
    on_disk = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    keys = [secret for secret in drawn if len(secret) == 32]
    assert len(keys) == 2
    assert not any(secret in on_disk for secret in (*keys, VALUE))


def test_a_locked_key_store_makes_the_sealer_wait_and_loses_nothing(room: Room) -> None:
    room.store._db.execute("PRAGMA busy_timeout = 0")
    sealed = room.sealer.seal(PLACE, VALUE)
    other = sqlite3.connect(room.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unavailable):
        room.sealer.commit()
    other.close()
    room.sealer.commit()
    assert room.open(sealed) == VALUE


def test_a_commit_of_unknown_outcome_may_be_made_again(room: Room) -> None:
    sealed = room.sealer.seal(PLACE, VALUE)
    records = (list(room.sealer._hour_records), list(room.sealer._data_records))
    room.sealer.commit()
    room.store.add(*records)
    assert room.open(sealed) == VALUE


def test_a_file_that_is_no_key_store_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "keystore.sqlite"
    path.write_bytes(b"something else entirely" * 100)
    with pytest.raises(BadState, match="backup"):
        KeyStore(path)


def test_the_key_store_syncs_each_commit_and_is_private(room: Room) -> None:
    assert room.store._db.execute("PRAGMA synchronous").fetchone() == (2,)
    assert room.store._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert room.path.stat().st_mode & 0o777 == 0o600


@given(st.lists(st.text()), st.lists(st.text()))
def test_no_two_places_share_their_associated_data(a: list[str], b: list[str]) -> None:
    assert (bound(*a) == bound(*b)) == (a == b)


GCM = (
    # key, IV, AAD, ciphertext, tag, plaintext (None: must be refused); NIST CAVS 14.0,
    # gcmDecrypt256.rsp
    (
        "54e352ea1d84bfe64a1011096111fbe7668ad2203d902a01458c3bbd85bfce14",
        "df7c3bca00396d0c018495d9",
        "7e968d71b50c1f11fd001f3fef49d045",
        "426e0efc693b7be1f3018db7ddbb7e4d",
        "ee8257795be6a1164d7e1d2d6cac77a7",
        "85fc3dfad9b5a8d3258e4fc44571bd3b",
    ),
    (
        "f0eaf7b41b42f4500635bc05d9cede11a5363d59a6288870f527bcffeb4d6e04",
        "18f316781077a595c72d4c07",
        "42cade3a19204b7d4843628c425c2375",
        "7a1b61009dce6b7cd4d1ea0203b179f1219dd5ce7407e12ea0a4c56c71bb791b",
        "4419180b0b963b7289a4fa3f45c535a3",
        "400fb5ef32083b3abea957c4f068abad50c8d86bbf9351fa72e7da5171df38f9",
    ),
    (
        "aeb3830cb9ce31cae7b1d47511bb2d3dcc2131714ace202b21b98820e7079792",
        "e7e87c45ec0a94c8e92353f1",
        "07d9bb1fa3aea7ceeefbedae87dcd713",
        "b20542b61b8fa6f847198334cb82fdbcb2311be855a6b2b3662bdb06ff079623"
        "8bea092a8ea21b585d38ace950378f41224269",
        "3bdd1d0cc2bbcefffe0ed2121aecbd00",
        "b4d0ecc410c430b61c11a1a42802858a0e9ee12f9a912f2f6b0570c99177f6de"
        "4bd79830cf9efb30759055e1f70d21e3f74957",
    ),
    (
        "d33c33b003bda4bc2ae47b4f5e477e90607a6342967a73d8a88151ee99394b1a",
        "cfc54a48b843763db1cdbaf6",
        "840befba8ef6ad83a74934919195a70f2d891dc0",
        "",
        "9dde8b668c585f513f3048b8a2cd1b06",
        "",
    ),
    (
        "9a0343f850a6427120f764789ffec6d237447b898fbf51d2182f065d3861497d",
        "3deef6f453dd70d92143adcd",
        "dbb8226a624520863db6897017b2a4f8",
        "e93165935ac18e3a2845d15fe31a9286",
        "f5fc50d18766bc3d9e16dd136d45816b",
        None,
    ),
    (
        "bcbf4f8694cbc2f2560253dd12a89cf5eca6ec72203bae092652199565c27c2e",
        "9967fbab1a6498681c958e96",
        "2145cea37ce88228bbc1812b58615b16",
        "7fbf44ef67832284da11f929ab5af428153c851cae56052133913d207d2c80ec"
        "9b2a84549420339e496d48c73b64bbf8c5964a",
        "3a09823f4d09205929fe178690dfbf75",
        None,
    ),
)


@pytest.mark.parametrize("vector", GCM)
def test_values_are_sealed_with_nists_aes_gcm(vector: tuple[str | None, ...]) -> None:
    key, iv, aad, ciphertext, tag = (bytes.fromhex(part or "") for part in vector[:5])
    sealed = iv + ciphertext + tag
    if vector[5] is None:
        with pytest.raises(SealBroken):
            _decrypt(key, sealed, aad, "vector")
        return
    plaintext = bytes.fromhex(vector[5])
    assert _decrypt(key, sealed, aad, "vector") == plaintext
    assert _encrypt(AESGCM(key), iv, plaintext, aad) == sealed


class Rfc9180:
    """The sender of RFC 9180 written down from the RFC: X25519, HKDF-SHA256, AES-256-GCM, base."""

    KEM = b"KEM" + (0x0020).to_bytes(2, "big")
    SUITE = b"HPKE" + b"".join(i.to_bytes(2, "big") for i in (0x0020, 0x0001, 0x0002))

    def extract(self, suite: bytes, salt: bytes, label: bytes, ikm: bytes) -> bytes:
        return hmac.digest(salt or bytes(32), b"HPKE-v1" + suite + label + ikm, "sha256")

    def expand(self, suite: bytes, prk: bytes, label: bytes, info: bytes, length: int) -> bytes:
        labeled = length.to_bytes(2, "big") + b"HPKE-v1" + suite + label + info
        return hmac.digest(prk, labeled + b"\x01", "sha256")[:length]  # length <= 32: one block

    def context(
        self, ephemeral: X25519PrivateKey, recipient: bytes, info: bytes
    ) -> tuple[bytes, bytes]:
        """Key and base nonce."""
        dh = ephemeral.exchange(X25519PublicKey.from_public_bytes(recipient))
        both = ephemeral.public_key().public_bytes_raw() + recipient
        prk = self.extract(self.KEM, b"", b"eae_prk", dh)
        shared = self.expand(self.KEM, prk, b"shared_secret", both, 32)
        hashes = self.extract(self.SUITE, b"", b"psk_id_hash", b"") + self.extract(
            self.SUITE, b"", b"info_hash", info
        )
        secret = self.extract(self.SUITE, shared, b"secret", b"")
        return (
            self.expand(self.SUITE, secret, b"key", b"\x00" + hashes, 32),
            self.expand(self.SUITE, secret, b"base_nonce", b"\x00" + hashes, 12),
        )


SK_R = "497b4502664cfea5d5af0b39934dac72242a74f8480451e1aee7d6a53320333d"
PK_R = "430f4b9859665145a6b1ba274024487bd66f03a2dd577d7753c68d7d7d00c00c"
SK_E = "179d4b53b6365c45b600c4163b61d95cbc2f4d9e36f1695558dce265ab8bab11"
INFO = "4f6465206f6e2061204772656369616e2055726e"


def test_the_written_down_sender_makes_the_rfcs_key_and_nonce() -> None:
    # RFC 9180 test vectors, mode 0, kem 0x0020, kdf 1, aead 2
    ephemeral = X25519PrivateKey.from_private_bytes(bytes.fromhex(SK_E))
    key, nonce = Rfc9180().context(ephemeral, bytes.fromhex(PK_R), bytes.fromhex(INFO))
    assert key.hex() == "f50b0609186798729ed0564b36ef2ef8044f1f9d05636874d1f46c819c7a669f"
    assert nonce.hex() == "151d9929e2449747889bc923"
    first = AESGCM(key).encrypt(
        nonce,
        bytes.fromhex("4265617574792069732074727574682c20747275746820626561757479"),
        b"Count-0",
    )
    assert first.hex() == (
        "e5d84cd531cfb583096e7cfa9641bd3079cf3a91cda813c52deb5f512be9931980a41de125a925cdad859d5b7a"
    )


def test_the_vault_opens_what_a_sender_of_rfc_9180_sealed() -> None:
    ephemeral = X25519PrivateKey.from_private_bytes(bytes.fromhex(SK_E))
    key, nonce = Rfc9180().context(ephemeral, bytes.fromhex(PK_R), b"info")
    sealed = ephemeral.public_key().public_bytes_raw() + AESGCM(key).encrypt(nonce, b"k" * 32, b"")
    vault = Vault(X25519PrivateKey.from_private_bytes(bytes.fromhex(SK_R)))
    assert vault.open(sealed, b"info") == b"k" * 32
    with pytest.raises(SealBroken):
        vault.open(sealed, b"other info")


def test_a_process_that_seals_is_given_no_private_key(tmp_path: Path) -> None:
    Vault.ensure(tmp_path)
    (tmp_path / "vault.key").unlink()
    public = VaultPublic.load(tmp_path)
    assert len(public.seal(b"k" * 32, b"info")) == 32 + 32 + 16
