"""A clock that stands still until a test moves it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


class ManualClock:
    """`Clock` whose wall and monotonic time move together, by `advance` only."""

    def __init__(self, start: datetime = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)) -> None:
        self._start = start
        self._now = start

    def now(self) -> datetime:
        """Current UTC time."""
        return self._now

    def monotonic(self) -> float:
        """Seconds since the clock was made."""
        return (self._now - self._start).total_seconds()

    def advance(self, seconds: float) -> None:
        """Move both clocks."""
        self._now += timedelta(seconds=seconds)
