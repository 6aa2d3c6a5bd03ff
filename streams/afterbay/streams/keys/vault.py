"""The vault: one X25519 pair. Everybody may seal to its public key, only its holder opens.

In:   a 32-byte key to be sealed, and the info it is bound to
Out:  HPKE (RFC 9180, base mode: DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-256-GCM), as
      encapsulated key (32 B) + ciphertext + tag (16 B)
Refuses: a private key file that others may read; bytes that were not sealed to this pair and info
Never: gives the private key away; processes that seal are handed the public key only
"""

from __future__ import annotations

from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from afterbay.schemas.errors import BadState
from afterbay.streams.keys.files import (
    VAULT_KEY,
    VAULT_PUB,
    read_secret,
    write_private,
    write_public,
)

ENCAPSULATED_BYTES = 32


class SealBroken(BadState):
    """A sealed value does not open: altered, moved to another place, or under another key."""


def _suite() -> Suite:
    return Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)


class VaultPublic:
    """The half of the vault that seals. Held by flusher and sink."""

    __slots__ = ("key",)

    def __init__(self, key: X25519PublicKey) -> None:
        self.key = key
        """X25519 public key."""

    @classmethod
    def load(cls, home_keys: Path) -> VaultPublic:
        """The public key in a home's `keys/` folder."""
        path = home_keys / VAULT_PUB
        try:
            key = serialization.load_pem_public_key(path.read_bytes())
        except FileNotFoundError:
            raise BadState(f"{path}: no such key; `afterbay up` makes it on first use") from None
        except ValueError:
            raise BadState(f"{path}: not a PEM public key; restore it from a backup") from None
        if not isinstance(key, X25519PublicKey):
            raise BadState(f"{path}: not an X25519 key; restore it from a backup")
        return cls(key)

    def seal(self, plaintext: bytes, info: bytes) -> bytes:
        """`plaintext` readable only by the vault's holder, and only with the same `info`."""
        return _suite().encrypt(plaintext, self.key, info)


class Vault:
    """The half that opens: a file of mode 0600, or whatever a KMS adapter puts in its place."""

    __slots__ = ("_private",)

    def __init__(self, private: X25519PrivateKey) -> None:
        self._private = private

    @classmethod
    def ensure(cls, home_keys: Path) -> None:
        """Make the pair in `home_keys`; a private key that is there already is kept."""
        private = X25519PrivateKey.generate().private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        write_private(home_keys / VAULT_KEY, private)
        # of the file, not of the key above: another process may have been faster
        write_public(
            home_keys / VAULT_PUB,
            cls.load(home_keys)
            .public()
            .key.public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            ),
        )

    @classmethod
    def load(cls, home_keys: Path) -> Vault:
        """The private key in a home's `keys/` folder; BadState if it is missing or not private."""
        path = home_keys / VAULT_KEY
        try:
            key = serialization.load_pem_private_key(read_secret(path), password=None)
        except ValueError:
            raise BadState(f"{path}: not a PEM private key; restore it from a backup") from None
        if not isinstance(key, X25519PrivateKey):
            raise BadState(f"{path}: not an X25519 key; restore it from a backup")
        return cls(key)

    def public(self) -> VaultPublic:
        """The half that seals."""
        return VaultPublic(self._private.public_key())

    def open(self, sealed: bytes, info: bytes) -> bytes:
        """What was sealed with `info`; SealBroken if it was altered or is somebody else's."""
        try:
            return _suite().decrypt(sealed, self._private, info)
        except (InvalidTag, ValueError):
            raise SealBroken(
                f"hour key of {len(sealed)} bytes does not open with this vault; "
                "check that the vault key belongs to this key store"
            ) from None

    def __repr__(self) -> str:
        """Shows no key."""
        return "Vault(…)"
