"""Merkle tree over archived events (RFC 6962 section 2.1, SHA-256).

In:   what a leaf stands for, or the leaf hashes of one partition in offset order
Out:  leaf data, leaf hashes, the tree's root
Never: reads a table

Leaf data is every part in turn, each as its length (4 bytes, big-endian) and its bytes: topic id
(UTF-8), partition, offset, broker timestamp in milliseconds (8 bytes, big-endian, signed), SHA-256
of the key, of the headers and of the stored bytes. Hashes stand for contents, so that retention can
drop those and keep the tree. The hash of an absent key is that of no bytes, told apart by presence
nowhere: absent and empty keys are one to us.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from struct import Struct

EMPTY_ROOT = sha256(b"").digest()
"""Root of a tree without leaves."""

_AFTER_TOPIC = Struct(">IqIqIqI32sI32sI32s")

Header = tuple[str, bytes | None]
"""Name and value of a Kafka header."""


def leaf_data(
    topic_id: str,
    partition: int,
    offset: int,
    timestamp_ms: int,
    hashes: tuple[bytes, bytes, bytes],
) -> bytes:
    """The bytes a leaf hashes; `hashes` are those of key, headers and stored bytes."""
    topic = topic_id.encode()
    key, headers, stored = hashes
    rest = _AFTER_TOPIC.pack(
        8, partition, 8, offset, 8, timestamp_ms, 32, key, 32, headers, 32, stored
    )
    return len(topic).to_bytes(4) + topic + rest


def headers_hash(headers: Iterable[Header]) -> bytes:
    """SHA-256 of headers in the order they came, names and values length-prefixed."""
    state = sha256()
    for name, value in headers:
        for part in (name.encode(), value or b""):
            state.update(len(part).to_bytes(4) + part)
    return state.digest()


def leaf_hash(data: bytes) -> bytes:
    """Hash of one leaf: H(00 || data)."""
    return sha256(b"\x00" + data).digest()


def root(leaves: Sequence[bytes]) -> bytes:
    """Root over leaf *hashes*; a lone last node goes up unchanged, it is never doubled."""
    if not leaves:
        return EMPTY_ROOT
    level = list(leaves)
    while len(level) > 1:
        pairs = zip(level[::2], level[1::2], strict=False)
        above = [sha256(b"\x01" + left + right).digest() for left, right in pairs]
        level = above + ([level[-1]] if len(level) % 2 else [])
    return level[0]
