"""Errors every folder shares: the type says what the caller may do, the message what a person may.

Never: payload text or personal data in a message. Name the place, the kind of value, what was
expected, and the next step.
"""

from __future__ import annotations

from dataclasses import dataclass


class AfterbayError(Exception):
    """Base of all errors raised by afterbay."""


class Retryable(AfterbayError):
    """Nothing happened; the same call may be made again."""


class Unavailable(Retryable):
    """A service that is needed is away (broker, key store, scheduler)."""


class OutcomeUnknown(AfterbayError):
    """The call may or may not have taken effect; look before trying again."""


class Fenced(AfterbayError):
    """Another owner has taken over; give the work up, do not retry."""


class OffsetGap(AfterbayError):
    """The log no longer holds offsets that were never read; stop, never reset silently."""


class BadSettings(AfterbayError):
    """A setting is missing or out of range."""


class BadState(AfterbayError):
    """Files or tables on disk are not what they must be; nothing was changed."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """A message that cannot become an event. Made by decoders, read by whoever dead-letters it."""

    reason: str
    """One of the dead-letter reasons in `topics.py`."""
    where: str
    """Place: schema, field or stage. Never the value."""
    size: int
    """Bytes of the message."""
