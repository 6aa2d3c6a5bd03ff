"""Redact JSON value by value, so that it stays JSON and still reveals byte for byte.

In:   JSON text, such as the arguments of a tool call
Out:  the same text with placeholders inside its strings, and `"[kind]"` for a number
Refuses: nothing: text that is no JSON is redacted as plain text
Never: re-serialises, so spaces, escapes and key order stay as they were
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from afterbay.streams.pii.redact import Cut, Failed, Redacted, Redactor, Span, assemble

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?', re.DOTALL)
_PIECE = re.compile(
    r"(?:\\u[dD][89aAbB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    r"|\\u[0-9a-fA-F]{4}|\\.|[^\\]",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class _Value:
    """One string (keys too) or number of the JSON text."""

    start: int
    """First code point of the token, its quote included."""
    end: int
    """End, exclusive."""
    text: str
    """What it says, escapes resolved."""
    origin: tuple[int, ...]
    """Offset in the JSON text of each character of `text`, and of the end of the last."""
    is_string: bool
    """False for a number."""


def redact_json(
    redactor: Redactor, text: str, prior: Sequence[Span] = (), first_ordinal: int | None = None
) -> Redacted:
    """JSON `text` without personal data, still JSON; raises what the detector raises."""
    return assemble(text, json_cuts(redactor, text, prior), first_ordinal)


def json_cuts(redactor: Redactor, text: str, prior: Sequence[Span] = ()) -> list[Cut]:
    """What to cut from JSON `text`, as `Redactor.cuts` for plain text."""
    if not _is_json(text):
        return redactor.cuts(text, prior)
    return [cut for value in _values(text) for cut in _cuts(redactor, value, prior)]


def attempt_json(redactor: Redactor, text: str) -> Redacted | Failed:
    """`redact_json` with the detector's fault as a value."""
    try:
        return redact_json(redactor, text)
    except Exception as error:  # whatever a rule raises, the text must not pass
        return Failed(type(error).__name__)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _values(text: str) -> Iterator[_Value]:
    for token in _TOKEN.finditer(text):
        start, end = token.span()
        if text[start] != '"':
            yield _Value(start, end, token.group(), tuple(range(start, end + 1)), False)
            continue
        pieces = list(_PIECE.finditer(text, start + 1, end - 1))
        said = "".join(_said(piece.group()) for piece in pieces)
        origin = (*(piece.start() for piece in pieces), end - 1)
        yield _Value(start, end, said, origin, True)


def _said(piece: str) -> str:
    """The one character that a piece of a JSON string stands for."""
    said: str = piece if len(piece) == 1 else json.loads(f'"{piece}"')
    return said


def _cuts(redactor: Redactor, value: _Value, prior: Sequence[Span]) -> Iterator[Cut]:
    mine = [span for span in prior if span.start < value.end and value.start < span.end]
    inside = [
        replace(
            span,
            start=bisect_left(value.origin, span.start),
            end=bisect_left(value.origin, min(span.end, value.end - 1)),
        )
        for span in mine
    ]
    kept = {span.ordinal: span for span in mine}
    for cut in redactor.cuts(value.text, inside):
        if cut.prior is not None:
            span = kept[cut.prior.ordinal]
            yield Cut(span.start, span.end, span.kind, span.also, prior=span)
        elif value.is_string:
            yield replace(cut, start=value.origin[cut.start], end=value.origin[cut.end])
        else:
            # a placeholder is no number: the whole of it becomes a string
            yield Cut(value.start, value.end, cut.kind, cut.also, placeholder=f'"[{cut.kind}]"')
            return
