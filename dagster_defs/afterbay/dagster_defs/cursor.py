"""What the sensor `experience` remembers between two looks.

In:   the text that Dagster keeps, None at first
Out:  offsets that trainings were requested for, as text again
Never: counts rows by offset differences; transactions and compaction leave holes
"""

from __future__ import annotations

import msgspec

from afterbay.lakehouse.positions import Positions, SourcePartition
from afterbay.lakehouse.slices import Place


class Cursor(msgspec.Struct, frozen=True):
    """How far trainings have been requested. Kept by Dagster as JSON."""

    places: tuple[Place, ...] = ()
    """Next reward offsets that no training was requested for."""
    evidence: bool = False
    """Whether there was enough held-out experience for the gate once."""

    @property
    def positions(self) -> dict[SourcePartition, int]:
        """`places` as positions."""
        return {
            SourcePartition(p.topic, p.topic_id, p.partition): p.next_offset for p in self.places
        }

    def moved(self, positions: Positions) -> Cursor:
        """The cursor after these rewards."""
        places = (Place(p.topic, p.topic_id, p.partition, v) for p, v in sorted(positions.items()))
        return msgspec.structs.replace(self, places=tuple(places))

    @classmethod
    def of(cls, text: str | None) -> Cursor:
        """The cursor that Dagster keeps; the first one reads from the beginning."""
        return msgspec.json.decode(text, type=cls) if text else cls()

    @property
    def text(self) -> str:
        """JSON."""
        return msgspec.json.encode(self).decode()
