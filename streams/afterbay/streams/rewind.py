"""May a table go back? Whether Kafka still holds what it would read again, and who writes it now.

In:   the steps of `lakehouse.rewinding`, the event log
Out:  nothing, if the steps may be taken
Refuses: offsets that the log no longer holds (OffsetGap), a table whose writer runs (BadState)
Never: moves a position
"""

from __future__ import annotations

from collections.abc import Sequence

from afterbay.lakehouse.rewinding import Step
from afterbay.schemas.errors import BadState, OffsetGap
from afterbay.streams.admin import first_offsets, group_members
from afterbay.streams.flush import PIPELINE
from afterbay.streams.kafka import KafkaAddress


def check_readable(address: KafkaAddress, steps: Sequence[Step]) -> None:
    """OffsetGap unless the log holds everything from each step's offset on."""
    held = first_offsets(address, {step.source.topic for step in steps})
    for step in steps:
        source, first = step.source, held.get(step.source)
        if first is None:
            raise OffsetGap(
                f"{source.topic}/{source.partition} with id {source.topic_id} is not in this Kafka "
                "any more, the topic was made again: what the restore took cannot be read from it; "
                "restore the table to the version before the restore"
            )
        if first > step.to:
            raise OffsetGap(
                f"{source.topic}/{source.partition} would go back to {step.to}, Kafka holds it "
                f"from {first} on: the sink could not start; restore the table to a newer version"
            )


def check_sink_stopped(address: KafkaAddress) -> None:
    """BadState if a sink of this event log runs, on whatever machine."""
    members = group_members(address, PIPELINE)
    if members:
        raise BadState(
            f"{members} sinks are in the consumer group {PIPELINE}; stop them first (`afterbay "
            "down`; one that was killed leaves the group after 10 s), or say --force: a running "
            "sink notices that it was overtaken and starts again from the tables"
        )
