"""Time comes in as an argument: `Clock` is the port, `SystemClock` the real one."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Clock(Protocol):
    """Wall clock (UTC) and monotonic clock."""

    def now(self) -> datetime:
        """Current UTC time, timezone-aware, in microseconds."""
        ...

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back; only differences mean something."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now(self) -> datetime:
        """Current UTC time."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds of `time.monotonic`."""
        return time.monotonic()


def micros(at: datetime) -> int:
    """Microseconds since the Unix epoch; exact, unlike `timestamp() * 1e6`."""
    return (at - EPOCH) // timedelta(microseconds=1)


def from_micros(value: int) -> datetime:
    """UTC time of `value` microseconds since the Unix epoch."""
    return EPOCH + timedelta(microseconds=value)
