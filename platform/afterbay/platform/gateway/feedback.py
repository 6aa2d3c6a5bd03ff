"""Feedback: one opinion about one inference, kept before it is acknowledged.

In:   `FeedbackRequest`s of a caller, an Idempotency-Key
Out:  the feedback's id
Refuses: ids that are none, or dated outside [now - retention, now + 1 min] (ApiError 422)
Never: asks whether the inference is known: feedback may come before its inference is in a table
"""

from __future__ import annotations

from collections import OrderedDict
from datetime import timedelta

from afterbay.platform.gateway.errors import ApiError
from afterbay.platform.gateway.journal import Journal
from afterbay.platform.gateway.wire import FeedbackRequest
from afterbay.platform.records import RawFeedback
from afterbay.schemas import ids
from afterbay.schemas.clock import Clock, micros
from afterbay.schemas.topics import WEEK_MS
from afterbay.streams.keys.pseudonyms import Pseudonyms

RETENTION = timedelta(milliseconds=WEEK_MS)
AHEAD = timedelta(minutes=1)
REMEMBERED = 100_000
"""Idempotency keys kept in memory; the rewarder's fold catches what is older."""


class Feedback:
    """The service behind `POST /v1/feedback`. One event loop."""

    def __init__(self, journal: Journal, pseudonyms: Pseudonyms, clock: Clock) -> None:
        self._journal = journal
        self._pseudonyms = pseudonyms
        self._clock = clock
        self._given: OrderedDict[tuple[str, str], str] = OrderedDict()

    def take(self, caller: str, request: FeedbackRequest, key: str | None) -> str:
        """Keep one opinion; its id. The same caller and key get the same id, kept once."""
        inference_id = self._dated(request.inference_id)
        known = self._given.get((caller, key)) if key else None
        if known is not None:
            return known
        record = self._record(caller, request, inference_id, key)
        self._journal.append(record)
        if key:
            self._given[caller, key] = record.event_id
            if len(self._given) > REMEMBERED:
                self._given.popitem(last=False)
        return record.event_id

    def _dated(self, text: str) -> str:
        inference_id = ids.inference_id(text)
        born = ids.minted_at(inference_id) if inference_id else None
        if inference_id is None or born is None:
            message = "inference_id is not the id of an answer; send the `id` of the completion"
            raise ApiError(422, "invalid_inference_id", message, param="inference_id")
        now = self._clock.now()
        if not now - RETENTION <= born <= now + AHEAD:
            message = (
                f"inference_id is dated outside the last {RETENTION.days} days; feedback that "
                "late cannot be joined with its answer"
            )
            raise ApiError(422, "inference_too_old", message, param="inference_id")
        return inference_id

    def _record(
        self, caller: str, request: FeedbackRequest, inference_id: str, key: str | None
    ) -> RawFeedback:
        name, given_at = self._pseudonyms.of, request.given_at
        return RawFeedback(
            event_id=ids.new_id(self._clock.now()),
            inference_id=inference_id,
            caller=caller,
            source=request.source,
            rater=name("rater", request.rater or caller),
            score=request.score,
            label=request.label,
            comment=request.comment,
            step=request.step,
            given_at_us=micros(given_at) if given_at else None,
            idempotency_key=name("idempotency_key", key) if key else None,
            subject=name("subject", request.subject) if request.subject else None,
        )
