"""Find personal data: a cheap look at a whole column, then rules on the few texts that remain.

In:   texts
Out:  which of them may hold a finding (`Detector.candidates`, no false negatives), and the
      findings of one (`Detector.find`), in code points of the text, apart and in order
Refuses: to go on past its time budget (DetectorTimeout); whoever asked must then let nothing pass
Never: puts a text or a value into an error
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from time import monotonic
from typing import Protocol

import polars as pl

from afterbay.schemas.errors import AfterbayError
from afterbay.streams.pii.folding import fold
from afterbay.streams.pii.kinds import (
    GATES,
    KINDS,
    LABELS,
    LITERAL,
    PLACEHOLDER,
    RAW_ALWAYS,
    Kind,
    Rule,
)

_CONTEXT = 48
"""Code points before a value in which its context words are looked for."""
_FEW = 16
"""Below so many texts the rules themselves are quicker than a column."""
_FOLDED = {name: cls.folded for name, cls in GATES.items()}
_RAW = {name: cls.raw for name, cls in GATES.items()}
_NUMBER = re.compile(r"[0-9](?:[ .()-]{0,2}[0-9])*+")
_NUMBER_START = re.compile(r"[0-9]+|[+(]")
_LETTERS_BEFORE = re.compile(r"[A-Za-z]{1,24}\Z")
_LETTERS_THEN_DIGIT = re.compile(r"[A-Za-z]+[0-9]")


_search = re.Pattern.search


class DetectorTimeout(AfterbayError):
    """A text took longer than its budget; it must be quarantined, not passed."""


@dataclass(frozen=True, slots=True, order=True)
class Match:
    """One value found. Made by the detector, read by the redactor."""

    start: int
    """First code point in the text that was searched."""
    end: int
    """End, exclusive."""
    kind: str
    """The most specific kind that the value is valid as."""
    also: tuple[str, ...] = ()
    """The other kinds it is valid as."""


class Finder(Protocol):
    """What the redactor needs of a detector."""

    def candidates(self, texts: Sequence[str]) -> list[bool]:
        """For each text, False only if `find` would find nothing in it."""
        ...

    def find(self, text: str) -> list[Match]:
        """Findings of one text, apart from each other and in order."""
        ...


class Detector:
    """Finds the given kinds. Made once by a process, then only read."""

    def __init__(self, kinds: Sequence[Kind] = KINDS, budget_s: float = 1.0) -> None:
        self._kinds = tuple(kinds)
        self._budget_s = budget_s
        self._gates = {
            kind.name: tuple(re.compile(gate.format_map(_FOLDED)) for gate in kind.gates)
            for kind in self._kinds
        }
        # what some rule of a number matches: one try at a start instead of one a rule
        self._screens = {
            kind.name: re.compile("|".join(f"(?:{rule.pattern.pattern})" for rule in kind.rules))
            for kind in self._kinds
            if kind.digits
        }

    @cached_property
    def prefilter(self) -> str:
        """One regex (Rust syntax) that every text with a finding matches, made from the kinds."""
        gates = [gate for kind in self._kinds for gate in kind.gates]
        least = min((kind.digits for kind in self._kinds if kind.digits), default=0)
        if least:
            gates.append(f"{{digit}}(?:{{gap}}{{{{0,2}}}}{{digit}}){{{{{least - 1}}}}}")
        raw = [gate.format_map(_RAW) for gate in gates]
        return "|".join([*raw, RAW_ALWAYS, PLACEHOLDER.pattern])

    def candidates(self, texts: Sequence[str]) -> list[bool]:
        """For each text, False only if `find` would find nothing in it."""
        if len(texts) < _FEW:
            return [True] * len(texts)
        try:
            column = pl.Series(values=texts, dtype=pl.String)
        except UnicodeEncodeError:  # a lone surrogate: no column, so every text is looked at
            return [True] * len(texts)
        return column.str.contains(self.prefilter).to_list()

    def find(self, text: str) -> list[Match]:
        """Findings of one text; DetectorTimeout once the budget is used up."""
        deadline = monotonic() + self._budget_s
        found = [Match(m.start(), m.end(), LITERAL) for m in PLACEHOLDER.finditer(text)]
        folded = fold(text)
        numbers = _numbers(folded.text)
        longest = max((digits for _, _, digits in numbers), default=0)
        for kind in self._kinds:
            if kind.digits > longest or not (kind.digits or self._opens(kind, folded.text)):
                continue
            starts = self._starts(kind, folded.text, numbers) if kind.digits else None
            if starts == []:
                continue
            for rule in kind.rules:
                spans = _values(rule, folded.text, starts, deadline)
                found += (Match(*folded.span(*span), kind.name) for span in spans)
        return self._settle(found) if found else found

    def _starts(self, kind: Kind, text: str, numbers: list[tuple[int, int, int]]) -> list[int]:
        """Where a value of a kind of number begins, by its patterns alone."""
        screen = self._screens[kind.name].match
        return [at for at in _starts(text, numbers, kind.digits) if screen(text, at)]

    def _opens(self, kind: Kind, text: str) -> bool:
        return any(map(_search, self._gates[kind.name], repeat(text)))

    def _settle(self, found: Iterable[Match]) -> list[Match]:
        """Same span: the first kind wins and names the others; overlap: the longest wins."""
        rank = {kind.name: at for at, kind in enumerate(self._kinds)} | {LITERAL: -1}
        kinds_of: dict[tuple[int, int], list[str]] = {}
        for match in found:
            kinds_of.setdefault((match.start, match.end), []).append(match.kind)
        whole = []
        for (start, end), names in kinds_of.items():
            first, *others = sorted(set(names), key=rank.__getitem__)
            whole.append(Match(start, end, first, tuple(others)))
        whole.sort(key=lambda match: (match.start - match.end, rank[match.kind], match.start))
        kept: list[Match] = []
        for match in whole:
            if all(match.end <= other.start or match.start >= other.end for other in kept):
                kept.append(match)
        return sorted(kept)


def _numbers(text: str) -> list[tuple[int, int, int]]:
    """(start, end, count of digits) of each number, its digits set apart by two signs at most."""
    runs = (match.span() for match in _NUMBER.finditer(text))
    return [(start, end, sum(map(str.isdigit, text[start:end]))) for start, end in runs]


def _starts(text: str, numbers: list[tuple[int, int, int]], least: int) -> list[int]:
    """Where a number of at least `least` digits may begin."""
    return [
        match.start()
        for start, end, digits in numbers
        if digits >= least
        for match in _NUMBER_START.finditer(text, max(0, start - 3), end)
    ]


def _values(
    rule: Rule, text: str, starts: list[int] | None, deadline: float
) -> Iterator[tuple[int, int]]:
    """Spans, in the folded text, of the values that a rule accepts; anywhere if no `starts`."""
    named = "value" if "value" in rule.pattern.groupindex else 0
    done = 0
    for match in _tries(rule.pattern, text, starts):
        if monotonic() > deadline:
            raise DetectorTimeout(
                f"a text of {len(text)} code points took longer than the detector's budget; "
                "quarantine it, and raise the budget if such texts are normal"
            )
        start, end = match.span(named)
        if start >= done and _accepts(rule, text, start, end):
            yield start, end
            done = end


def _tries(
    pattern: re.Pattern[str], text: str, starts: list[int] | None
) -> Iterator[re.Match[str]]:
    """Every match of `pattern`, overlapping ones too: after a false one a true one may begin."""
    if starts is not None:
        yield from filter(None, map(pattern.match, repeat(text), starts))
        return
    match = pattern.search(text)
    while match is not None:
        yield match
        match = pattern.search(text, match.start() + 1)


def _accepts(rule: Rule, text: str, start: int, end: int) -> bool:
    if rule.freestanding and not _freestanding(text, start, end):
        return False
    before = text[max(0, start - _CONTEXT) : start]
    if rule.after is not None and rule.after.search(before) is None:
        return False
    if rule.not_after is not None and rule.not_after.search(before) is not None:
        return False
    return rule.valid(text[start:end])


def _freestanding(text: str, start: int, end: int) -> bool:
    """False if ASCII letters beside the value make it part of an identifier, a hash, a code."""
    glued = _LETTERS_BEFORE.search(text[max(0, start - 25) : start])
    if glued is not None and glued.group().lower() not in LABELS:
        return False
    return _LETTERS_THEN_DIGIT.match(text, end) is None
