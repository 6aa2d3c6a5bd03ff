"""Mask the token ids that spell out a finding.

In:   token ids, the end of each in code points of the text, and the stretches that were cut
Out:  the ids with `MASK_ID` where they overlap a stretch, and the runs that were masked
Refuses: nothing: where the ends cannot be trusted, every id is masked
Never: leaves an id whose bytes may belong to a value
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

MASK_ID = -1


@dataclass(frozen=True, slots=True)
class MaskedIds:
    """Token ids after masking. Made here, read by the flusher."""

    ids: tuple[int, ...]
    """The ids, `MASK_ID` where masked."""
    runs: tuple[tuple[int, int], ...]
    """Stretches of masked ids: first index and end, exclusive."""


def mask_ids(
    ids: Sequence[int],
    ends: Sequence[int] | None,
    length: int,
    cuts: Sequence[tuple[int, int]],
) -> MaskedIds:
    """Mask `ids` of a text of `length` code points where they overlap `cuts` (start, end)."""
    if not cuts:
        return MaskedIds(tuple(ids), ())
    if ends is None or not _fits(ids, ends, length):
        hit = [True] * len(ids)
    else:
        hit = [
            any(_touches(start, end, *cut) for cut in cuts) for start, end in pairwise((0, *ends))
        ]
    masked = tuple(MASK_ID if cut else kept for kept, cut in zip(ids, hit, strict=True))
    return MaskedIds(masked, _runs(hit))


def _fits(ids: Sequence[int], ends: Sequence[int], length: int) -> bool:
    """True if `ends` can be the ends of `ids`: as many, never falling, within the text."""
    rising = all(before <= after for before, after in pairwise((0, *ends, length)))
    return len(ids) == len(ends) and rising


def _touches(start: int, end: int, cut_start: int, cut_end: int) -> bool:
    """True if the token may hold bytes of the cut.

    A token that ends where it starts holds some bytes of a character beside it, on either side.
    """
    if start == end:
        return cut_start <= start <= cut_end
    return start < cut_end and cut_start < end


def _runs(hit: Sequence[bool]) -> tuple[tuple[int, int], ...]:
    edges = [at for at, (before, now) in enumerate(pairwise((False, *hit, False))) if before != now]
    return tuple(zip(edges[::2], edges[1::2], strict=True))
