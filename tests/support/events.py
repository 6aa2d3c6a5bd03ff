"""Events as the flusher would send them, and a sender of them, for tests of what comes after it."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from afterbay.schemas import ids
from afterbay.schemas.clock import SystemClock
from afterbay.schemas.errors import OutcomeUnknown, Retryable
from afterbay.schemas.events import Cursor, Event, FeedbackReceived, InferenceCompleted, Sampling
from afterbay.streams.kafka import KafkaAddress
from afterbay.streams.outbox import Outbox
from tests.support.agents import wait_until


def inference(session: int, **fields: Any) -> InferenceCompleted:
    """One answer; `fields` replace what they name."""
    now = datetime.now(UTC)
    one = InferenceCompleted(
        event_id=ids.new_id(now),
        request_id=ids.new_id(now),
        attempt=1,
        session_id=f"s_{session}",
        turn=1,
        subject="p_1",
        policy="bank-agent",
        arm="current",
        arm_probability=1.0,
        snapshot_id="s1",
        digest="d1",
        model="bank-agent",
        tokenizer="t",
        prompt="hello",
        response="card_block",
        prompt_ids=(1, 2),
        response_ids=(3,),
        response_logprobs=(-0.5,),
        loss_mask=(1,),
        trainable=True,
        altered=False,
        sampling=Sampling(temperature=1, top_p=1, top_k=0, min_p=0, logprobs_mode="processed"),
        finish_reason="stop",
        dispatched_at=now,
        started_at=now,
        completed_at=now,
        node_id="node-1",
    )
    return msgspec.structs.replace(one, **fields)


def opinion(inference_id: str, score: float | None, **fields: Any) -> FeedbackReceived:
    """One person's opinion; `fields` replace what they name."""
    one = FeedbackReceived(
        event_id=ids.new_id(datetime.now(UTC)),
        inference_id=inference_id,
        caller="k1",
        source="person",
        rater="r_1",
        score=score,
    )
    return msgspec.structs.replace(one, **fields)


class Sender:
    """Stands in for the flusher: the same outbox, another source; sends again what was not sent."""

    def __init__(self, log: KafkaAddress) -> None:
        self._outbox = Outbox("sender", log, SystemClock())
        self._ring = uuid.uuid4().hex  # another sender's cursor says nothing about ours
        self._sequence = 0
        self._lost = True
        """True while it does not know what the log holds; opening the outbox tells."""

    def send(self, *events: Event) -> None:
        """All of `events` in one transaction, once, whatever happens to the broker meanwhile."""
        self._sequence += 1
        cursor = Cursor(source="sender", ring_id=self._ring, sequence=self._sequence)
        wait_until("the events are sent", lambda: self._tried(events, cursor))

    def _tried(self, events: Sequence[Event], cursor: Cursor) -> bool:
        """One try; True once the log holds them."""
        try:
            if self._lost:
                found = self._outbox.open()
                self._lost = False
                if found == cursor:
                    return True
            self._outbox.commit(events, cursor)
        except OutcomeUnknown:
            self._lost = True
        except Retryable:
            pass
        else:
            return True
        return False
