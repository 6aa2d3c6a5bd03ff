"""Hypothesis strategies for events, made from the carriers' own types."""

from __future__ import annotations

import types
from datetime import datetime
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec
from hypothesis import strategies as st

from afterbay.schemas import ids
from afterbay.schemas.clock import from_micros
from afterbay.schemas.events import EVENT_TYPES, Event

texts = st.text(st.characters(codec="utf-8"), max_size=40)
ints = st.integers(-(2**31), 2**31 - 1)
instants = st.integers(1_577_836_800_000_000, 2_208_988_800_000_000).map(from_micros)
"""UTC times of 2020 to 2040, in whole microseconds."""
uuids = st.builds(ids.new_id, instants, st.binary(min_size=10, max_size=10))
_SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    str: texts,
    int: ints,
    bool: st.booleans(),
    float: st.floats(width=32, allow_nan=False, allow_infinity=False),
    datetime: instants,
}


def of_type(kind: Any) -> st.SearchStrategy[Any]:
    """Values of one annotation of a carrier."""
    if kind in _SCALARS:
        return _SCALARS[kind]
    if get_origin(kind) in (Union, types.UnionType):
        inner = [k for k in get_args(kind) if k is not type(None)]
        return st.none() | of_type(inner[0])
    if get_origin(kind) is tuple:
        return st.lists(of_type(get_args(kind)[0]), max_size=4).map(tuple)
    return structs(kind)


def structs(kind: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    """Structs of one carrier type, every field drawn from its annotation."""
    hints = {k: v for k, v in get_type_hints(kind).items() if k != "TOPIC"}
    fields = {name: of_type(hint) for name, hint in hints.items()}
    for name in {"event_id", "inference_id"} & fields.keys():
        fields[name] = uuids
    return st.builds(kind, **fields)


events: st.SearchStrategy[Event] = st.one_of([structs(kind) for kind in EVENT_TYPES.values()])
