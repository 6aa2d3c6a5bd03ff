"""The gateway's end of the L1 ring: room before work, a record before the last byte.

In:   records
Out:  appended records
Refuses: work when the ring has no room for its record (ApiError 503)
Never: lets an admitted answer find the ring full: its room was reserved first
"""

from __future__ import annotations

from afterbay.platform.gateway.errors import ApiError, unavailable
from afterbay.platform.records import RawRecord, pack
from afterbay.platform.ring import Reservation, Ring, RingFull

_BASE_BYTES = 16 * 1024
"""Room for everything in a record but what grows with the request."""
_PER_BYTE = 12
"""A byte of prompt is at most one token: its text, its id and its end."""


class Journal:
    """Appends to one ring. One thread."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring

    @property
    def fill(self) -> float:
        """Share of the ring in use, 0 to 1."""
        return self._ring.fill

    def admit(self, body_bytes: int) -> Reservation:
        """Room for the record that a request of `body_bytes` will make; ApiError 503 if none."""
        reservation = self._ring.reserve(_BASE_BYTES + _PER_BYTE * body_bytes)
        if reservation is None:
            raise _full()
        return reservation

    def append(self, record: RawRecord, reservation: Reservation | None = None) -> None:
        """Keep `record`; ApiError 503 if there is no room for it."""
        try:
            self._ring.append(pack(record), reservation)
        except RingFull:
            raise _full() from None

    def release(self, reservation: Reservation) -> None:
        """Give room back that no record took; harmless after `append`."""
        self._ring.release(reservation)


def _full() -> ApiError:
    return unavailable("ring_full", "events are written slower than they come; try again shortly")
