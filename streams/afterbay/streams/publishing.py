"""Tell everybody what happened to a snapshot: once, and only if it still makes sense.

In:   a policy, the run that decided, and its events, or a rule that makes them from the arm state
Out:  `policy.snapshot.v2` events, in one transaction with the cursor `publisher/<policy>`, whose
      run_id says which run is done
Refuses: nothing; a run that is done already, and events that are out already, publish nothing
Never: publishes for a state it has not read: opening the outbox fences every other publisher of
       the policy first, then the topic is read to its end, then the rule decides
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from confluent_kafka import IsolationLevel

from afterbay.schemas.clock import Clock, SystemClock
from afterbay.schemas.errors import Unavailable
from afterbay.schemas.events import Cursor, PolicySnapshot
from afterbay.streams.admin import EndOffsets
from afterbay.streams.arms import ArmState, fold_arms
from afterbay.streams.follow import Follower
from afterbay.streams.kafka import KafkaAddress
from afterbay.streams.outbox import Outbox

TOPIC = PolicySnapshot.TOPIC
_READ_S = 30.0

Decide = Callable[[ArmState], Sequence[PolicySnapshot]]
"""From where the policy stands now to what is to be told; empty if nothing is."""


def publish(
    address: KafkaAddress,
    events: Sequence[PolicySnapshot],
    run_id: str,
    clock: Clock | None = None,
) -> list[PolicySnapshot]:
    """Publish `events` of one policy under `run_id`; gives those that went out by this call.

    Safe to repeat: an event id that is on the topic is not written again.
    """
    policies = {event.policy for event in events}
    if len(policies) != 1:
        raise ValueError(f"run {run_id}: events of {len(policies)} policies; publish one at a time")
    return publish_decided(
        address,
        policies.pop(),
        run_id,
        lambda arms: [event for event in events if event.event_id not in arms.seen],
        clock or SystemClock(),
    )


def publish_decided(
    address: KafkaAddress, policy: str, run_id: str, decide: Decide, clock: Clock
) -> list[PolicySnapshot]:
    """Publish what `decide` makes of the policy's present arms; compare and set, in effect.

    Nobody can publish between the reading and the commit: a newer publisher fences this one, which
    then raises Fenced and has written nothing.
    """
    source = f"publisher/{policy}"
    outbox = Outbox(source, address, clock)
    try:
        done = outbox.open()
        if done is not None and done.run_id == run_id:
            return []
        events = list(decide(read_arms(address, policy, clock)))
        if events:
            outbox.commit(events, Cursor(source=source, run_id=run_id))
        return events
    finally:
        outbox.close()


def read_arms(address: KafkaAddress, policy: str, clock: Clock) -> ArmState:
    """Where `policy` stands after every event committed by now, read from the topic itself."""
    ends = EndOffsets(address, [TOPIC])(IsolationLevel.READ_COMMITTED)
    deadline = clock.monotonic() + _READ_S
    arms = ArmState()
    follower = Follower(address, [TOPIC])
    try:
        while any(follower.next_offset(place) < end for place, end in ends.items()):
            told = [f.event for f in follower.poll(0.2) if isinstance(f.event, PolicySnapshot)]
            arms = fold_arms((event for event in told if event.policy == policy), arms)
            if clock.monotonic() > deadline:
                raise Unavailable(
                    f"{TOPIC}: its end was not reached in {_READ_S:.0f} s; the broker is slow or "
                    "away (`afterbay status`); try again"
                )
    finally:
        follower.close()
    return arms
