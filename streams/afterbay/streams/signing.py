"""Ed25519 signatures (RFC 8032) over snapshot manifests and, later, tree heads.

In:   the home's `keys/` folder: `policy.key` (PEM, mode 0600) and `policy.pub` (PEM)
Out:  signatures of 64 bytes, and yes or no to one
Refuses: a private key file that others may read; a file that is no Ed25519 key
Never: shows the private key; a process that only verifies is handed the public key alone
"""

from __future__ import annotations

from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from afterbay.schemas.errors import BadState
from afterbay.streams.keys.files import read_secret, write_private, write_public

POLICY_KEY = "policy.key"
POLICY_PUB = "policy.pub"
SIGNATURE_BYTES = 64


class Ed25519Verifier:
    """Checks signatures. Held by every node; implements `schemas.signer.Verifier`."""

    __slots__ = ("_public",)

    def __init__(self, public: Ed25519PublicKey) -> None:
        self._public = public

    @classmethod
    def load(cls, home_keys: Path) -> Ed25519Verifier:
        """The public half in a home's `keys/` folder; BadState if there is none."""
        path = home_keys / POLICY_PUB
        try:
            key = load_pem_public_key(path.read_bytes())
        except FileNotFoundError:
            raise BadState(f"{path}: no such key; `afterbay up` makes it on first use") from None
        except ValueError:
            raise BadState(f"{path}: not a PEM public key; restore it from a backup") from None
        if not isinstance(key, Ed25519PublicKey):
            raise BadState(f"{path}: not an Ed25519 key; restore it from a backup")
        return cls(key)

    def verify(self, message: bytes, signature: bytes) -> bool:
        """True if the private half signed exactly `message`."""
        try:
            self._public.verify(signature, message)
        except InvalidSignature:
            return False
        return True

    def pem(self) -> bytes:
        """The public key as SubjectPublicKeyInfo PEM."""
        return self._public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


class Ed25519Signer:
    """Makes signatures. Held by training runs; implements `schemas.signer.Signer`."""

    __slots__ = ("_private",)

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._private = private

    @classmethod
    def generate(cls) -> Ed25519Signer:
        """A new key from the operating system's randomness."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def load(cls, home_keys: Path) -> Ed25519Signer:
        """The private half in a home's `keys/` folder; BadState if it is missing or not private."""
        path = home_keys / POLICY_KEY
        try:
            key = load_pem_private_key(read_secret(path), password=None)
        except ValueError:
            raise BadState(f"{path}: not a PEM private key; restore it from a backup") from None
        if not isinstance(key, Ed25519PrivateKey):
            raise BadState(f"{path}: not an Ed25519 key; restore it from a backup")
        return cls(key)

    def sign(self, message: bytes) -> bytes:
        """The signature over `message`; deterministic (RFC 8032)."""
        return self._private.sign(message)

    def verifier(self) -> Ed25519Verifier:
        """The half that checks."""
        return Ed25519Verifier(self._private.public_key())

    def pem(self) -> bytes:
        """The private key as PKCS 8 PEM, for the key file alone."""
        return self._private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    def __repr__(self) -> str:
        """Shows no key."""
        return "Ed25519Signer(…)"


def ensure_policy_keys(keys: Path) -> None:
    """Make the policy pair in `keys` where it is missing; a key that is there is kept.

    A home whose private key was moved to another machine keeps its public half and gets no new
    pair: nodes would refuse every snapshot signed elsewhere.
    """
    keys.mkdir(mode=0o700, parents=True, exist_ok=True)
    if (keys / POLICY_PUB).exists():
        return
    write_private(keys / POLICY_KEY, Ed25519Signer.generate().pem())
    # of the file, not of the key above: another process may have been faster
    write_public(keys / POLICY_PUB, Ed25519Signer.load(keys).verifier().pem())
