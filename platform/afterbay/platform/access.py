"""Who may open what is sealed: asked before anything is opened, and told whatever the answer.

In:   an operator's API key, the scope an action needs, its targets and the reason given
Out:  an `audit.access.v2` event for each target, committed, before the caller goes on
Refuses: an unknown key, a key without the scope, no reason (Denied), always after the event
Never: opens anything itself; goes on while the event could not be written; tells a key's text

It guards the command, not the file: whoever can read the vault's private key needs no command.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from afterbay.platform.apikeys import ApiKey, ApiKeys
from afterbay.schemas import ids
from afterbay.schemas.clock import Clock
from afterbay.schemas.errors import AfterbayError
from afterbay.schemas.events import AuditAccess, Cursor
from afterbay.streams.kafka import KafkaAddress
from afterbay.streams.outbox import Outbox

UNKNOWN = "unknown"
"""Actor of an attempt with no key, or with one that is none of ours."""


class Denied(AfterbayError):
    """The caller may not do this; the attempt is on record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """Something that needs a permission. Made by commands."""

    action: str
    """reveal or redrive."""
    scope: str
    """Scope that the key must have."""
    targets: tuple[str, ...]
    """Ids it is about; each gets its own event."""
    reason: str
    """Why, in the caller's words."""


class Guard:
    """Decides and tells. Made by commands."""

    def __init__(self, keys: Path, address: KafkaAddress, clock: Clock) -> None:
        self._keys = ApiKeys(keys)
        self._address = address
        self._clock = clock

    def permit(self, key_text: str, attempt: Attempt) -> str:
        """The caller's id, if it may; Denied if it may not. Either way the event is out."""
        key = self._keys.find(key_text)
        refusal = _refusal(key, key_text, attempt)
        actor = UNKNOWN if key is None else key.id
        self._tell(actor, attempt, allowed=not refusal)
        if refusal:
            raise Denied(f"{attempt.action}: {refusal}; the attempt is on record")
        return actor

    def _tell(self, actor: str, attempt: Attempt, *, allowed: bool) -> None:
        now = self._clock.now()
        events = [
            AuditAccess(
                event_id=ids.new_id(now),
                actor=actor,
                action=attempt.action,
                target=target,
                reason=attempt.reason,
                allowed=allowed,
            )
            for target in attempt.targets
        ]
        source = f"access/{events[0].event_id}"
        outbox = Outbox(source, self._address, self._clock)
        try:
            outbox.open()
            outbox.commit(events, Cursor(source=source, run_id=events[0].event_id))
        finally:
            outbox.close()


def _refusal(key: ApiKey | None, key_text: str, attempt: Attempt) -> str:
    """Why not; empty if nothing speaks against it."""
    if not key_text:
        return "no API key was given; set AFTERBAY_API_KEY to one that has the scope"
    if key is None:
        return "the API key is none of this home; `afterbay apikey list` shows their ids"
    if attempt.scope not in key.scopes:
        return (
            f"key {key.id} has not the scope {attempt.scope}; make one that has it with "
            f"`afterbay apikey create NAME --scope {attempt.scope}`"
        )
    if not attempt.reason.strip():
        return "no reason was given"
    return ""
