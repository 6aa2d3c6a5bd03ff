"""The port through which manifests and tree heads are signed; `streams` has the Ed25519 one."""

from __future__ import annotations

from typing import Protocol


class Signer(Protocol):
    """Makes signatures with a private key that it alone holds."""

    def sign(self, message: bytes) -> bytes:
        """Signature over `message`."""
        ...


class Verifier(Protocol):
    """Checks signatures with the public key."""

    def verify(self, message: bytes, signature: bytes) -> bool:
        """True if `signature` was made over `message` by the matching private key."""
        ...
