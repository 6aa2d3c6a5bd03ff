"""A folded copy of a text, in which every way to write a digit or a sign is the plain one.

In:   text as people type it: full-width, other scripts' digits, zero-width characters, odd dashes
Out:  the folded copy, and the exact way back from its offsets to those of the text
Refuses: nothing; every string folds
Never: turns one character into several, so that offsets stay exact
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

_FULL_WIDTH = range(0xFF01, 0xFF5F)
_FULL_WIDTH_SHIFT = 0xFEE0
_SMALL_FORMS = {0xFE52: ".", 0xFE55: ":", 0xFE59: "(", 0xFE5A: ")", 0xFE6B: "@"}
_MINUS = 0x2212
_UNSEEN = {0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFFA0}
"""Characters that show nothing and yet are no format characters (fillers, joiners)."""


def _fold_one(code: int) -> int | None:
    """What one code point folds to; None if it is dropped."""
    if code in _FULL_WIDTH:
        return code - _FULL_WIDTH_SHIFT
    if code in _UNSEEN or 0xFE00 <= code <= 0xFE0F:
        return None
    return _by_category(code, unicodedata.category(chr(code)))


def _by_category(code: int, category: str) -> int | None:
    if category == "Nd":
        return ord("0") + unicodedata.decimal(chr(code))
    if category == "Cf":
        return None
    if category == "Zs":
        return ord(" ")
    if category == "Pd" or code == _MINUS:
        return ord("-")
    return ord(_SMALL_FORMS.get(code, chr(code)))


class _Table(dict[int, int | None]):
    """`_fold_one` for `str.translate`, remembered per code point that was ever seen."""

    def __missing__(self, code: int) -> int | None:
        folded = self[code] = _fold_one(code)
        return folded


_TABLE = _Table()


@dataclass(frozen=True, slots=True)
class Folded:
    """A folded copy. Made by `fold`, read by the detector."""

    text: str
    """The copy; as long as the original, or shorter where characters were dropped."""
    origin: tuple[int, ...] | None
    """Offset in the original of each character of `text`; None if they are the same."""

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Offsets in the original of the non-empty `text[start:end]`, end exclusive.

        Characters that were dropped inside belong to the span, those at its edges do not.
        """
        if self.origin is None:
            return start, end
        return self.origin[start], self.origin[end - 1] + 1


def fold(text: str) -> Folded:
    """The folded copy of `text`."""
    if text.isascii():
        return Folded(text, None)
    copy = text.translate(_TABLE)
    if len(copy) == len(text):
        return Folded(copy, None)
    kept = tuple(at for at, char in enumerate(text) if _TABLE[ord(char)] is not None)
    return Folded(copy, kept)
