"""Carriers, schema files and the topic table say the same."""

from __future__ import annotations

import json
import types
from datetime import datetime
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest

from afterbay.schemas import codec
from afterbay.schemas.events import EVENT_TYPES, Event
from afterbay.schemas.topics import TABLES, TOPICS, topic

PINNED = Path(__file__).with_name("fingerprints.json")
PRIMITIVES = {
    str: {"string"},
    int: {"int", "long"},
    float: {"float", "double"},
    bool: {"boolean"},
    datetime: {"long"},
}


def check_same(kind: Any, avro: Any, named: dict[str, Any]) -> None:
    """Fail where an annotation and an Avro type differ."""
    avro = named.get(avro, avro) if isinstance(avro, str) else avro
    if get_origin(kind) in (Union, types.UnionType):
        assert isinstance(avro, list)
        assert avro[0] == "null"
        check_same(get_args(kind)[0], avro[1], named)
    elif get_origin(kind) is tuple:
        check_same(get_args(kind)[0], avro["items"], named)
    elif isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        check_record(kind, avro, named)
    else:
        assert (avro if isinstance(avro, str) else avro["type"]) in PRIMITIVES[kind]
        assert (kind is datetime) == (
            isinstance(avro, dict) and avro.get("logicalType") == "timestamp-micros"
        )


def check_record(kind: type[msgspec.Struct], avro: dict[str, Any], named: dict[str, Any]) -> None:
    named[f"afterbay.{avro['name']}"] = avro
    hints = {k: v for k, v in get_type_hints(kind).items() if k != "TOPIC"}
    assert [f["name"] for f in avro["fields"]] == list(hints)
    for field in avro["fields"]:
        assert field["doc"], f"{avro['name']}.{field['name']} has no doc"
        check_same(hints[field["name"]], field["type"], named)


@pytest.mark.parametrize("name", TOPICS)
def test_the_carrier_mirrors_its_schema(name: str) -> None:
    check_record(EVENT_TYPES[name], json.loads(codec.newest(name).text), {})


@pytest.mark.parametrize("name", TOPICS)
def test_the_schema_keeps_to_types_that_decode_columnar(name: str) -> None:
    text = codec.newest(name).text
    for forbidden in ("map", "bytes", "decimal", "uuid", "enum", "fixed"):
        assert f'"type": "{forbidden}"' not in text
        assert f'"logicalType": "{forbidden}"' not in text


def test_a_changed_schema_has_a_changed_fingerprint_and_its_revision_was_raised() -> None:
    now = {f"{s.topic}/{s.revision}": s.fingerprint.hex() for s in codec.by_fingerprint().values()}
    assert now == json.loads(PINNED.read_text()), (
        "a published revision is never edited: add the next one, and pin its fingerprint"
    )


def test_no_schema_file_is_left_out_of_the_topic_table() -> None:
    folder = Path(codec.__file__).parent / "avro"
    on_disk = {f"{file.parent.name}/{file.stem}" for file in folder.rglob("*.avsc")}
    known = {f"{s.topic}/{s.revision}" for s in codec.by_fingerprint().values()}
    assert on_disk == known


def test_every_topic_but_the_cursor_has_its_own_table() -> None:
    assert set(TOPICS) - set(TABLES) == {"cursor.v2"}
    assert len(set(TABLES.values())) == len(TABLES)


@pytest.mark.parametrize("name", TOPICS)
def test_key_and_date_are_fields_of_the_event(name: str) -> None:
    fields = EVENT_TYPES[name].__struct_fields__
    assert TOPICS[name].key in fields
    assert TOPICS[name].table is None or TOPICS[name].date_of in fields


def test_an_unknown_topic_is_refused_with_the_known_ones() -> None:
    with pytest.raises(KeyError, match=r"inference\.completed\.v2"):
        topic("nothing.v2")


def test_a_carrier_that_does_not_fit_is_refused_without_its_value() -> None:
    bad: Event = EVENT_TYPES["policy.loaded.v2"](
        event_id="e", node_id="13812345678", policy="p", snapshot_id="s", digest=7, load_ms=1.0
    )
    with pytest.raises(codec.EncodeError) as error:
        codec.encode(bad)
    assert "policy.loaded.v2" in str(error.value)
    assert "13812345678" not in str(error.value)
