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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from afterbay.streams import columns
from afterbay.streams.keys.sealer import Place
from afterbay.streams.letters import Seals
from afterbay.streams.pii import Failed, Redacted, Redactor, Span
from afterbay.streams.pii.json_text import json_cuts
from afterbay.streams.pii.kinds import LITERAL
from afterbay.streams.pii.redact import Cut, assemble

UNTRAINABLE = "redacted_in_sink"
"""Why a row that was redacted here is not trained on."""
_TOKENS = ("prompt_ids", "response_ids", "response_logprobs", "loss_mask")


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

    row: int
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


_Cut = tuple[_Text, list[Cut]]
"""A text, and what to cut from it."""
_Change = tuple[_Text, Redacted]
"""A text, and what becomes of it."""

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
    texts = [text for f in _FIELDS.get(topic, ()) for text in _candidates(rows, f, redactor)]
    earlier = _findings(rows, {text.row for text in texts})
    searched = list(zip(texts, _searched(redactor, texts, earlier), strict=True))
    failed = frozenset(text.row for text, cuts in searched if isinstance(cuts, Failed))
    cut: dict[int, list[_Cut]] = defaultdict(list)
    for text, cuts in searched:
        if text.row not in failed and not isinstance(cuts, Failed) and _is_new(cuts):
            cut[text.row].append((text, cuts))
    found = tuple(sorted(row for row, of_one in cut.items() if _is_personal(of_one)))
    dirty = rows.take(pa.array(found, pa.int64()))
    changes = [_redacted(cut[row], earlier.get(row, ())) for row in found]
    redacted = _masked(_rewritten(dirty, changes, sealer)) if found else dirty
    return Rechecked(found, redacted, columns.encode_rows(topic, redacted), failed)


def _candidates(rows: pa.Table, field: _Field, redactor: Redactor) -> Iterator[_Text]:
    """Each text of a field that may hold something."""
    column = rows.column(field.column).combine_chunks()
    listed = pa.types.is_list(column.type)
    values = column.flatten() if listed else column
    values = pc.fill_null(values if field.part is None else values.field(field.part), "")
    hits = np.flatnonzero(_held(values, redactor, few=field.few))
    texts = values.take(pa.array(hits)).to_pylist()
    if not listed:
        yield from (_Text(int(at), field, None, text) for at, text in zip(hits, texts, strict=True))
        return
    parents = column.value_parent_indices().to_numpy()
    starts = column.offsets.to_numpy() - column.offsets[0].as_py()
    for hit, text in zip(hits, texts, strict=True):
        row = int(parents[hit])
        yield _Text(row, field, int(hit - starts[row]), text)


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


def _findings(rows: pa.Table, wanted: Iterable[int]) -> dict[int, Sequence[Mapping[str, Any]]]:
    """Earlier findings of the wanted rows that have some."""
    if "pii" not in rows.column_names:
        return {}
    lengths = pc.list_value_length(rows.column("pii")).to_numpy()
    places = sorted(row for row in wanted if lengths[row])
    found = rows.column("pii").take(pa.array(places, pa.int64())).to_pylist()
    return dict(zip(places, found, strict=True))


def _searched(
    redactor: Redactor,
    texts: Sequence[_Text],
    earlier: Mapping[int, Sequence[Mapping[str, Any]]],
) -> Iterator[list[Cut] | Failed]:
    """What to cut from each text, earlier findings among it."""
    priors = [
        [_span(f) for f in earlier[text.row] if f["field"] == text.name]
        if text.row in earlier
        else []
        for text in texts
    ]
    both = list(zip(texts, priors, strict=True))
    plain = [(text.text, prior) for text, prior in both if not text.field.json]
    cut = iter(redactor.cuts_many([text for text, _ in plain], [prior for _, prior in plain]))
    for text, prior in both:
        yield _json_cuts(redactor, text.text, prior) if text.field.json else next(cut)


def _json_cuts(redactor: Redactor, text: str, prior: Sequence[Span]) -> list[Cut] | Failed:
    try:
        return json_cuts(redactor, text, prior)
    except Exception as error:  # whatever a rule raises, the row must not pass
        return Failed(type(error).__name__)


def _is_new(cuts: Sequence[Cut]) -> bool:
    return any(cut.prior is None for cut in cuts)


def _is_personal(of_one: Sequence[_Cut]) -> bool:
    return any(c.prior is None and c.kind != LITERAL for _, cuts in of_one for c in cuts)


def _redacted(of_one: Sequence[_Cut], findings: Sequence[Mapping[str, Any]]) -> list[_Change]:
    """Texts of one event, redacted; ordinals go on where its earlier findings end."""
    ordinal = 1 + max((f["ordinal"] for f in findings), default=-1)
    done = []
    for text, cuts in of_one:
        clean = assemble(text.text, cuts, ordinal)
        ordinal += len(clean.new)
        done.append((text, clean))
    return done


def _span(finding: Mapping[str, Any]) -> Span:
    return Span(
        finding["start"],
        finding["end"],
        finding["kind"],
        tuple(finding["also"]),
        finding["ordinal"],
    )


def _rewritten(rows: pa.Table, changes: Sequence[Sequence[_Change]], sealer: Seals) -> pa.Table:
    """`rows` with their redacted texts and all their findings."""
    values: dict[str, list[Any]] = {}
    for row, of_one in enumerate(changes):
        for text, clean in of_one:
            _put(values, rows, row, text, clean.text)
    findings = [
        _sealed(event, of_one, sealer) for event, of_one in zip(_owners(rows), changes, strict=True)
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


def _sealed(owner: _Owner, of_one: Sequence[_Change], sealer: Seals) -> list[dict[str, Any]]:
    """All findings of an event: the earlier ones where they are now, then the new ones, sealed."""
    at = {s.ordinal: s for _, clean in of_one for s in clean.spans if s.value is None}
    moved = [
        finding
        if (span := at.get(finding["ordinal"])) is None
        else finding | {"start": span.start, "end": span.end}
        for finding in owner.findings
    ]
    for text, clean in of_one:
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
