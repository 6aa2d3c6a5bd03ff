"""Redact: (text, findings) to (text, findings), idempotent on that pair and reversible.

In:   a text, and the findings that were cut from it before (`prior`)
Out:  the text with `[kind]` for each value, and all findings with their ordinals
Refuses: as a `Failed` value: a text on which the detector raised or ran out of time
Never: looks inside an earlier finding, renumbers one, or lets a text pass that was not looked at

A value may appear only once its neighbour is gone (a digit beside it was another value's), so the
rules run again until they find nothing. They run on a view in which every finding, earlier or
new, is one character that no rule matches; the second run over (text, findings) sees that very
view, which is what makes redaction idempotent.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from afterbay.streams.pii.detect import Detector, DetectorTimeout, Finder

BARRIER = "\ufffc"
"""Stands for a finding in the view that rules run on (OBJECT REPLACEMENT CHARACTER)."""
_MAX_PASSES = 32
"""Passes over one text; each but the last unveils values that another one hid."""


@dataclass(frozen=True, slots=True)
class Span:
    """One finding of a text. Made by the redactor, sealed by the flusher."""

    start: int
    """First code point of its placeholder in the redacted text."""
    end: int
    """End of the placeholder, exclusive."""
    kind: str
    """Kind of personal data, or `literal`."""
    also: tuple[str, ...] = ()
    """Other kinds the value is valid as."""
    ordinal: int = 0
    """Number among the findings of the event; never changes."""
    value: str | None = None
    """What the placeholder replaced, to be sealed; None if it was sealed before."""
    source_start: int = 0
    """First code point of `value` in the text that was redacted."""
    source_end: int = 0
    """End in that text, exclusive."""


@dataclass(frozen=True, slots=True)
class Redacted:
    """A text in which every value found is a placeholder. Made by the redactor."""

    text: str
    """The redacted text."""
    spans: tuple[Span, ...] = ()
    """Earlier and new findings, in the order of the text."""

    @property
    def new(self) -> tuple[Span, ...]:
        """The findings of this run; the others were sealed before."""
        return tuple(span for span in self.spans if span.value is not None)


@dataclass(frozen=True, slots=True)
class Failed:
    """A text that could not be searched; its event must be quarantined. Made by the redactor."""

    reason: str
    """Type of the error; never the text."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A stretch of the source text that is, or becomes, a placeholder."""

    start: int
    """First code point in the source."""
    end: int
    """End, exclusive."""
    kind: str
    """Kind of personal data."""
    also: tuple[str, ...] = ()
    """Other kinds the value is valid as."""
    prior: Span | None = None
    """The earlier finding that this is; None if it is new."""
    placeholder: str = ""
    """What a new one is replaced with."""


class Redactor:
    """Redacts texts with one detector."""

    def __init__(self, detector: Finder | None = None) -> None:
        self._detector = Detector() if detector is None else detector

    def redact(
        self, text: str, prior: Sequence[Span] = (), first_ordinal: int | None = None
    ) -> Redacted:
        """`text` without personal data; raises what the detector raises.

        `prior` are the findings already cut from it (their `start`, `end` in `text`). New ones are
        numbered from `first_ordinal` on, or past the largest of `prior`.
        """
        return assemble(text, self.cuts(text, prior), first_ordinal)

    def redact_many(self, texts: Sequence[str]) -> list[Redacted | Failed]:
        """Each text redacted on its own; texts without a finding cost one pass over the column."""
        found = self.cuts_many(texts, [()] * len(texts))
        return [
            cuts if isinstance(cuts, Failed) else assemble(text, cuts)
            for text, cuts in zip(texts, found, strict=True)
        ]

    def candidates(self, texts: Sequence[str]) -> list[bool]:
        """For each text, False only if nothing can be found in it."""
        return self._detector.candidates(texts)

    def cuts(self, text: str, prior: Sequence[Span] = ()) -> list[Cut]:
        """What to cut from `text`: the earlier findings and all new ones, in order."""
        cuts = _kept(prior)
        for _ in range(_MAX_PASSES):
            found = self._found(_View(text, cuts))
            if not found:
                return cuts
            cuts = _in_order([*cuts, *found])
        raise DetectorTimeout(
            f"a text still had findings after {_MAX_PASSES} passes; quarantine it, it was made "
            "to be searched without end"
        )

    def cuts_many(
        self, texts: Sequence[str], priors: Sequence[Sequence[Span]]
    ) -> list[list[Cut] | Failed]:
        """`cuts` of each text, given its earlier findings; faults as values.

        Pass by pass over all of them, so that the look at a column spares most texts the rules,
        and nearly all of them the last pass, which finds nothing.
        """
        done: list[list[Cut] | Failed] = [_kept(prior) for prior in priors]
        left: Sequence[int] = range(len(texts))
        for _ in range(_MAX_PASSES):
            left = self._pass(texts, done, left)
            if not left:
                return done
        for at in left:
            done[at] = Failed(DetectorTimeout.__name__)
        return done

    def _pass(
        self, texts: Sequence[str], done: list[list[Cut] | Failed], left: Sequence[int]
    ) -> list[int]:
        """One pass over the texts at `left`, into `done`; those in which something was found."""
        cut = ((at, cuts) for at in left if not isinstance(cuts := done[at], Failed))
        views = [(at, cuts, _View(texts[at], cuts)) for at, cuts in cut]
        held = self._detector.candidates([view.text for _, _, view in views])
        again: list[int] = []
        for (at, cuts, view), maybe in zip(views, held, strict=True):
            if not maybe:
                continue
            try:
                found = self._found(view)
            except Exception as error:  # whatever a rule raises, the text must not pass
                done[at] = Failed(type(error).__name__)
                continue
            if found:
                done[at] = _in_order([*cuts, *found])
                again.append(at)
        return again

    def _found(self, view: _View) -> list[Cut]:
        return [
            Cut(
                *view.source(match.start, match.end),
                match.kind,
                match.also,
                placeholder=f"[{match.kind}]",
            )
            for match in self._detector.find(view.text)
        ]


def _kept(prior: Iterable[Span]) -> list[Cut]:
    """The earlier findings as cuts."""
    return _in_order(Cut(s.start, s.end, s.kind, s.also, prior=s) for s in prior)


def _in_order(cuts: Iterable[Cut]) -> list[Cut]:
    return sorted(cuts, key=lambda cut: cut.start)


class _View:
    """A text in which every cut is one barrier, and the way back to the text's offsets."""

    def __init__(self, text: str, cuts: Sequence[Cut]) -> None:
        self.text = text
        self._starts, self._shifts = [0], [0]
        if cuts:
            self._cut(text, cuts)

    def _cut(self, text: str, cuts: Sequence[Cut]) -> None:
        pieces: list[str] = []
        self._starts, self._shifts = [], []
        at = length = 0
        for cut in (*cuts, None):
            piece = text[at : cut.start] if cut is not None else text[at:]
            self._starts.append(length)
            self._shifts.append(at - length)
            pieces.append(piece)
            length += len(piece) + 1
            at = cut.end if cut is not None else at
        self.text = BARRIER.join(pieces)

    def source(self, start: int, end: int) -> tuple[int, int]:
        """Offsets in the text of a match that lies between two barriers."""
        shift = self._shifts[bisect_right(self._starts, start) - 1]
        return start + shift, end + shift


def assemble(text: str, cuts: Sequence[Cut], first_ordinal: int | None = None) -> Redacted:
    """`text` with a placeholder for each of `cuts` (in order, apart from each other)."""
    if not cuts:
        return Redacted(text)
    ordinal = first_ordinal
    if ordinal is None:
        ordinal = 1 + max((cut.prior.ordinal for cut in cuts if cut.prior), default=-1)
    pieces: list[str] = []
    spans: list[Span] = []
    at = length = 0
    for cut in cuts:
        shown = cut.placeholder if cut.prior is None else text[cut.start : cut.end]
        length += cut.start - at
        pieces += (text[at : cut.start], shown)
        number, value = (
            (ordinal, text[cut.start : cut.end]) if cut.prior is None else (cut.prior.ordinal, None)
        )
        ordinal += cut.prior is None
        spans.append(
            Span(length, length + len(shown), cut.kind, cut.also, number, value, cut.start, cut.end)
        )
        length, at = length + len(shown), cut.end
    return Redacted("".join(pieces) + text[at:], tuple(spans))


def reveal(text: str, values: Iterable[tuple[int, int, str]]) -> str:
    """The text before redaction: each (start, end, value) put back in the redacted `text`."""
    pieces: list[str] = []
    at = 0
    for start, end, value in sorted(values):
        pieces += (text[at:start], value)
        at = end
    return "".join(pieces) + text[at:]
