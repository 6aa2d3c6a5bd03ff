"""Tell once and for all which experience a training run refused.

In:   refusals and the run's id
Out:  `experience.dropped.v2` events, all in one outbox transaction under the run's own source
Never: tells twice: a run that is repeated finds its source's cursor and leaves it at that
"""

from __future__ import annotations

from collections.abc import Sequence

from afterbay.schemas import ids
from afterbay.schemas.clock import Clock
from afterbay.schemas.events import Cursor, ExperienceDropped
from afterbay.streams.kafka import KafkaAddress
from afterbay.streams.outbox import Outbox
from afterbay.trainers.replay import Refusal


def tell_drops(
    address: KafkaAddress, policy: str, run_id: str, refusals: Sequence[Refusal], clock: Clock
) -> int:
    """Produce the drop events of a run; gives how many went out by this call."""
    if not refusals:
        return 0
    # a source for each run: after other runs, too, a repeated one still finds that it is done
    source = f"trainer/{policy}/{run_id}"
    outbox = Outbox(source, address, clock)
    try:
        if outbox.open() is not None:
            return 0
        outbox.commit(
            [_event(refusal, run_id, clock) for refusal in refusals],
            Cursor(source=source, run_id=run_id),
        )
        return len(refusals)
    finally:
        outbox.close()


def _event(refusal: Refusal, run_id: str, clock: Clock) -> ExperienceDropped:
    return ExperienceDropped(
        event_id=ids.new_id(clock.now()),
        inference_id=refusal.inference_id,
        run_id=run_id,
        stage=refusal.stage,
        reason=refusal.reason,
        lag=refusal.lag,
    )
