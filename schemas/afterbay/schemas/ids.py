"""Ids: UUIDv7 (RFC 9562 section 5.7), so that an id tells its own date.

In:   a clock's time and random bytes
Out:  canonical lower-case text, sortable by millisecond
Refuses: text that is no UUIDv7 (`parse` gives None; callers name the place)
"""

from __future__ import annotations

import os
import uuid
from datetime import datetime

from afterbay.schemas.clock import from_micros, micros

CHAT_PREFIX = "chatcmpl-"


def new_id(now: datetime, entropy: bytes | None = None) -> str:
    """UUIDv7 of `now` (timezone-aware); `entropy` is 10 bytes, drawn from the OS if None."""
    random = int.from_bytes(os.urandom(10) if entropy is None else entropy)
    millis = micros(now) // 1000 & (1 << 48) - 1
    value = millis << 80 | 0x7 << 76 | (random >> 62 & 0xFFF) << 64 | 0b10 << 62
    return str(uuid.UUID(int=value | random & (1 << 62) - 1))


def parse(text: str) -> uuid.UUID | None:
    """The UUIDv7 that `text` is in canonical form, else None."""
    try:
        value = uuid.UUID(text)
    except ValueError:
        return None
    canonical = value.version == 7 and value.variant == uuid.RFC_4122 and str(value) == text
    return value if canonical else None


def minted_at(event_id: str) -> datetime | None:
    """When a UUIDv7 was minted (UTC, whole milliseconds); None if it is no UUIDv7."""
    value = parse(event_id)
    if value is None:
        return None
    millis = value.int >> 80
    try:
        return from_micros(millis * 1000)
    except OverflowError:
        return None


def date_label(event_id: str) -> str | None:
    """UTC date `YYYY-MM-DD` of a UUIDv7, the `date` partition of tables; None if it is none."""
    at = minted_at(event_id)
    return None if at is None else at.strftime("%Y-%m-%d")


def inference_id(text: str) -> str | None:
    """The inference id in `text`, with or without `chatcmpl-`; None if there is none."""
    bare = text.removeprefix(CHAT_PREFIX)
    return bare if parse(bare) else None
