"""Pseudonyms: the same person gets the same name, and nobody without the key can test a guess.

In:   a kind (`subject`, `session`, `rater`, `idempotency_key`) and the clear value
Out:  32 hex digits of HMAC-SHA-256 (RFC 2104, truncated to 128 bits as its section 5 allows)
Refuses: a key of less than 32 bytes; a key file that others may read
Never: keeps or shows a clear value, or the key
"""

from __future__ import annotations

import hmac
from pathlib import Path

from afterbay.schemas.errors import BadSettings
from afterbay.streams.keys.files import PSEUDONYM_KEY, read_secret

KEY_BYTES = 32
PSEUDONYM_BYTES = 16


class Pseudonyms:
    """Names people and sessions under one secret key. Made by the gateway at start."""

    __slots__ = ("_key",)

    def __init__(self, key: bytes) -> None:
        if len(key) < KEY_BYTES:
            raise BadSettings(
                f"pseudonym key: {len(key)} bytes, expected at least {KEY_BYTES}; "
                "remove the file and start again to have one made"
            )
        self._key = key

    @classmethod
    def load(cls, home_keys: Path) -> Pseudonyms:
        """The pseudonyms of the home whose `keys/` folder is given; see `ensure_keys`."""
        return cls(bytes.fromhex(read_secret(home_keys / PSEUDONYM_KEY).decode("ascii")))

    def of(self, kind: str, clear: str) -> str:
        """Pseudonym of `clear` as a `kind`; the same value of two kinds gets two pseudonyms."""
        head = kind.encode("ascii")
        # the length prefix keeps (kind, clear) apart from every other split of the same text
        message = bytes([len(head)]) + head + clear.encode("utf-8", "surrogatepass")
        return hmac.digest(self._key, message, "sha256")[:PSEUDONYM_BYTES].hex()

    def __repr__(self) -> str:
        """Shows no key."""
        return "Pseudonyms(…)"
