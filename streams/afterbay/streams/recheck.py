"""Redact again in the sink: what the flusher let through, or never saw, is masked and sealed.

In:   decoded events of one topic as rows
Out:  `Rechecked`: the rows in which something was found, redacted and encoded anew; the rows that
      could not be searched
Refuses: as a failed row: a text on which the detector raised or ran out of time
Never: touches a row in which nothing new is found; keeps the token ids of one in which it is: the
      sink has no offsets of tokens, so ids and log-probs go and the row is not trained on

Clean rows cost one regex over a column. A text that only holds the literal form of a placeholder is
left alone: nothing in it is personal, and no reader looks for placeholders in a text.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from afterbay.streams import columns
from afterbay.streams.keys.sealer import Place, Sealed
from afterbay.streams.pii import Failed, Redacted, Redactor, Span, redact_json
from afterbay.streams.pii.kinds import LITERAL

UNTRAINABLE = "redacted_in_sink"
"""Why a row that was redacted here is not trained on."""
_TOKENS = ("prompt_ids", "response_ids", "response_logprobs", "loss_mask")


class Seals(Protocol):
    """What the sink needs of a sealer; `keys.sealer.Sealer`."""

    def seal(self, place: Place, plaintext: bytes) -> Sealed:
        """`plaintext`, readable with the vault only."""
        ...

    def commit(self) -> None:
        """Put the records of new keys on disk."""
        ...


@dataclass(frozen=True, slots=True)
class Rechecked:
    """What was found in a table of events. Made by `recheck`, read by the intake."""

    found: tuple[int, ...]
    """Index of each row that was redacted; ascending."""
    rows: pa.Table
    """Those rows, redacted, in the same order."""
    encoded: tuple[bytes, ...]
    """Each of them as the bytes of a message."""
    failed: frozenset[int]
    """Rows that could not be searched; nothing of them may pass."""


@dataclass(frozen=True, slots=True)
class _Field:
    """A column that a client or a model wrote."""

    column: str
    part: str | None = None
    """Member of the structs in a column of lists."""
    json: bool = False
    """True for JSON text, which has to stay JSON."""
    few: bool = False
    """True if its values repeat, so that each is looked at once."""


@dataclass(frozen=True, slots=True)
class _Text:
    """One text that may hold something."""

    field: _Field
    at: int | None
    """Index in the list; None if the column is no list."""
    text: str

    @property
    def name(self) -> str:
        """As findings name it."""
        if self.at is None:
            return self.field.column
        part = "" if self.field.part is None else f".{self.field.part}"
        return f"{self.field.column}[{self.at}]{part}"


_FIELDS: Mapping[str, tuple[_Field, ...]] = MappingProxyType(
    {
        "inference.completed.v2": (
            _Field("prompt"),
            _Field("response"),
            _Field("model", few=True),
            _Field("tools", few=True),
            _Field("tool_calls", "id"),
            _Field("tool_calls", "name", few=True),
            _Field("tool_calls", "arguments", json=True),
        ),
        "feedback.received.v2": (_Field("label", few=True), _Field("comment")),
    }
)
"""Every text of an event, in the order in which the flusher numbers findings."""


def recheck(topic: str, rows: pa.Table, redactor: Redactor, sealer: Seals) -> Rechecked:
    """Search every text of `rows`; `rows` have at least the columns of an event of `topic`."""
    suspects = _suspects(topic, rows, redactor)
    places = sorted(suspects)
    near = rows.take(pa.array(places, pa.int64()))
    searched = [
        _searched(redactor, suspects[row], prior)
        for row, prior in zip(places, _findings(near), strict=True)
    ]
    failed = frozenset(row for row, s in zip(places, searched, strict=True) if s is None)
    hits = [at for at, s in enumerate(searched) if s]
    found = tuple(places[at] for at in hits)
    dirty = near.take(pa.array(hits, pa.int64()))
    changes = [(suspects[places[at]], searched[at] or ()) for at in hits]
    redacted = _masked(_rewritten(dirty, changes, sealer)) if hits else dirty
    return Rechecked(found, redacted, columns.encode_rows(topic, redacted), failed)


def _suspects(topic: str, rows: pa.Table, redactor: Redactor) -> dict[int, list[_Text]]:
    """Texts that may hold something, by row."""
    suspects: dict[int, list[_Text]] = defaultdict(list)
    for field in _FIELDS.get(topic, ()):
        for row, at, text in _candidates(rows, field, redactor):
            suspects[row].append(_Text(field, at, text))
    return suspects


def _candidates(
    rows: pa.Table, field: _Field, redactor: Redactor
) -> Iterator[tuple[int, int | None, str]]:
    """(row, index in the list, text) of each text of a field that may hold something."""
    column = rows.column(field.column).combine_chunks()
    listed = pa.types.is_list(column.type)
    values = column.flatten() if listed else column
    values = pc.fill_null(values if field.part is None else values.field(field.part), "")
    hits = np.flatnonzero(_held(values, redactor, few=field.few))
    texts = values.take(pa.array(hits)).to_pylist()
    if not listed:
        yield from ((int(row), None, text) for row, text in zip(hits, texts, strict=True))
        return
    parents = column.value_parent_indices().to_numpy()
    starts = column.offsets.to_numpy() - column.offsets[0].as_py()
    for hit, text in zip(hits, texts, strict=True):
        row = int(parents[hit])
        yield row, int(hit - starts[row]), text


def _held(values: pa.Array, redactor: Redactor, *, few: bool) -> NDArray[np.bool_]:
    """For each value, False only if nothing can be found in it."""
    if not few:
        return np.array(redactor.candidates(values.to_pylist()), dtype=np.bool_)
    coded = values.dictionary_encode()
    # few enough to be searched themselves: a name that passes the look would cost every row
    known = redactor.redact_many(coded.dictionary.to_pylist())
    held = np.array([isinstance(t, Failed) or bool(t.new) for t in known], dtype=np.bool_)
    hits: NDArray[np.bool_] = held[coded.indices.to_numpy()]
    return hits


def _findings(rows: pa.Table) -> list[list[dict[str, Any]]]:
    """Earlier findings of each row; topics without any have no such column."""
    if "pii" not in rows.column_names:
        return [[]] * rows.num_rows
    found: list[list[dict[str, Any]]] = rows.column("pii").to_pylist()
    return found


def _searched(
    redactor: Redactor, texts: Sequence[_Text], findings: Sequence[Mapping[str, Any]]
) -> list[Redacted] | None:
    """Each text redacted; empty if nothing personal is new in any; None if one cannot be searched.

    Ordinals go on where the event's earlier findings end.
    """
    ordinal = 1 + max((f["ordinal"] for f in findings), default=-1)
    done: list[Redacted] = []
    try:
        for text in texts:
            prior = [_span(f) for f in findings if f["field"] == text.name]
            redacted = (
                redact_json(redactor, text.text, prior, ordinal)
                if text.field.json
                else redactor.redact(text.text, prior, ordinal)
            )
            ordinal += len(redacted.new)
            done.append(redacted)
    except Exception:  # whatever a rule raises, the row must not pass
        return None
    personal = any(span.kind != LITERAL for redacted in done for span in redacted.new)
    return done if personal else []


def _span(finding: Mapping[str, Any]) -> Span:
    return Span(
        finding["start"],
        finding["end"],
        finding["kind"],
        tuple(finding["also"]),
        finding["ordinal"],
    )


def _rewritten(
    rows: pa.Table, changes: Sequence[tuple[Sequence[_Text], Sequence[Redacted]]], sealer: Seals
) -> pa.Table:
    """`rows` with their redacted texts and all their findings."""
    values: dict[str, list[Any]] = {}
    for row, (texts, redacted) in enumerate(changes):
        for text, clean in zip(texts, redacted, strict=True):
            if clean.new:
                _put(values, rows, row, text, clean.text)
    findings = [
        _sealed(event, texts, redacted, sealer)
        for event, (texts, redacted) in zip(_owners(rows), changes, strict=True)
    ]
    return _with(rows, {**values, "pii": findings})


def _put(values: dict[str, list[Any]], rows: pa.Table, row: int, text: _Text, clean: str) -> None:
    """Put one redacted text in its place; a column becomes plain values when first written to."""
    name = text.field.column
    column = values.setdefault(name, [])
    if not column:
        column.extend(rows.column(name).to_pylist())
    if text.at is None:
        column[row] = clean
    elif text.field.part is None:
        column[row][text.at] = clean
    else:
        column[row][text.at][text.field.part] = clean


@dataclass(frozen=True, slots=True)
class _Owner:
    """Whose values they are."""

    event_id: str
    subject: str
    """Pseudonym, or `inference:<id>`: erasing a person takes those of their inferences too."""
    findings: list[dict[str, Any]]
    """Earlier ones."""


def _owners(rows: pa.Table) -> Iterator[_Owner]:
    of = "inference_id" if "inference_id" in rows.column_names else "event_id"
    names = ("event_id", "subject", of, "pii")
    parts = (rows.column(name).to_pylist() for name in names)
    for event_id, subject, inference_id, findings in zip(*parts, strict=True):
        yield _Owner(event_id, subject or f"inference:{inference_id}", findings)


def _sealed(
    owner: _Owner, texts: Sequence[_Text], redacted: Sequence[Redacted], sealer: Seals
) -> list[dict[str, Any]]:
    """All findings of an event: the earlier ones where they are now, then the new ones, sealed."""
    at = {span.ordinal: span for clean in redacted for span in clean.spans if span.value is None}
    moved = [
        finding
        if (span := at.get(finding["ordinal"])) is None
        else finding | {"start": span.start, "end": span.end}
        for finding in owner.findings
    ]
    for text, clean in zip(texts, redacted, strict=True):
        name = text.name
        moved += (_finding(owner, name, span, sealer) for span in clean.new)
    return moved


def _finding(owner: _Owner, field: str, span: Span, sealer: Seals) -> dict[str, Any]:
    place = Place(owner.event_id, field, span.ordinal, span.kind, owner.subject)
    sealed = sealer.seal(place, (span.value or "").encode("utf-8", "surrogatepass"))
    return {
        "field": field,
        "ordinal": span.ordinal,
        "kind": span.kind,
        "also": span.also,
        "start": span.start,
        "end": span.end,
        "key_id": sealed.key_id,
        "ciphertext": sealed.ciphertext,
    }


def _masked(rows: pa.Table) -> pa.Table:
    """Without token ids and what belongs to them, and not to be trained on."""
    count = rows.num_rows
    if "trainable" not in rows.column_names:
        return rows
    gone: dict[str, Any] = {name: pa.nulls(count, rows.schema.field(name).type) for name in _TOKENS}
    said = {"trainable": [False] * count, "untrainable_reason": [UNTRAINABLE] * count}
    return _with(rows, gone | said)


def _with(rows: pa.Table, values: Mapping[str, Any]) -> pa.Table:
    for name, column in values.items():
        field = rows.schema.field(name)
        made = column if isinstance(column, pa.Array) else pa.array(column, field.type)
        rows = rows.set_column(rows.schema.get_field_index(name), field, made)
    return rows
