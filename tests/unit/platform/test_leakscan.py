"""The leak scan finds what leaked on purpose, in every form and place, and nothing else."""

import base64
import json
import logging
from io import BytesIO
from pathlib import Path

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterbay.platform.home import Home
from afterbay.platform.leakscan import scan
from afterbay.platform.needles import FORMS, Searcher, base64_alignments, id_writings, spaced
from afterbay.platform.records import pack
from afterbay.platform.ring import L1, Ring, discard
from afterbay.schemas.errors import BadState
from afterbay.streams.pii.folding import fold
from tests.support.raw_records import raw_inference

PHONE, MAIL, CARD = "13812345678", "li.na@example.com", "4111 1111 1111 1111"
VALUES = (PHONE, MAIL, CARD)
WIDE = "１３８１２３４５６７８"


def by_character(text: str) -> list[int]:
    """A tokenizer: one id a character."""
    return [ord(char) + 1_000 for char in text]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.prepare()
    (made.run / "gateway.log").write_text("nothing here but 13812345679\n")
    return made


def write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def as_avro(ids: list[int]) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, {"type": "array", "items": "int"}, ids)
    return out.getvalue()


@given(st.binary(min_size=6, max_size=40), st.binary(max_size=7), st.binary(max_size=7))
def test_base64_shows_a_value_in_one_of_three_alignments(
    value: bytes, before: bytes, after: bytes
) -> None:
    text = base64.b64encode(before + value + after)
    assert any(needle in text for needle in base64_alignments(value))


@given(st.lists(st.integers(0, 2**31 - 1), min_size=3, max_size=8))
def test_token_ids_are_known_as_the_codecs_write_them(ids: list[int]) -> None:
    record = raw_inference(prompt_ids=[5, *ids, 6])
    assert any(needle in pack(record) for needle in id_writings(ids))
    assert any(needle in json.dumps([5, *ids, 6]).encode() for needle in id_writings(ids))
    assert any(needle in as_avro([5, *ids, 6]) for needle in id_writings(ids))
    assert spaced(ids) in spaced([5, *ids, 6])


def test_a_clean_home_shows_where_it_looked_and_nothing_found(home: Home) -> None:
    report = scan(home, VALUES, encode=by_character)
    assert report.hits == 0
    assert report.places["run/gateway.log"] == 0
    assert (report.values, report.planted) == (0, 3)
    assert report.searched_bytes > 0


@pytest.mark.parametrize(
    ("form", "leak"),
    [
        ("raw", PHONE.encode()),
        ("raw", f"call {MAIL} now".encode()),
        ("full_width", WIDE.encode()),
        ("json_escaped", json.dumps(WIDE).encode()),
        ("base64", base64.b64encode(b"x" + PHONE.encode())),
        ("base64", base64.urlsafe_b64encode(f"我的{WIDE}".encode())),
        ("token_ids", json.dumps(by_character(f"是{PHONE}，")).encode()),
        ("token_ids", repr(by_character(PHONE)).encode()),
    ],
)
def test_each_form_is_found_in_a_log(home: Home, form: str, leak: bytes) -> None:
    write(home.log("flusher"), b"2026-03-01 INFO " + leak + b"\n")
    report = scan(home, VALUES, encode=by_character)
    assert report.places["run/flusher.log"] >= 1
    assert report.forms[form] >= 1
    assert report.values == 1


def test_a_full_width_value_is_found_written_in_ascii(home: Home) -> None:
    write(home.log("node"), PHONE.encode())
    assert scan(home, [WIDE]).forms == {"folded": 1}
    assert fold(WIDE).text == PHONE


def test_a_superseded_table_file_is_searched_value_by_value(home: Home) -> None:
    table = pa.table(
        {
            "prompt": pa.array([f"我的{PHONE}"]).dictionary_encode(),
            "pii": pa.array([[{"field": MAIL, "start": 1}]]),
            "prompt_ids": pa.array([by_character(f"是{PHONE}，")], pa.list_(pa.int32())),
            "event": pa.array([base64.b64encode(CARD.encode())], pa.binary()),
        }
    )
    old = home.lake / "inference" / "date=2026-03-01" / "old.parquet"
    old.parent.mkdir(parents=True)
    pq.write_table(table, old, compression="zstd")
    report = scan(home, VALUES, encode=by_character)
    assert report.places["lake/inference"] >= 4
    assert {form for form, hits in report.forms.items() if hits} >= {"raw", "base64", "token_ids"}
    assert report.values == 3


def test_a_torn_table_file_is_searched_as_it_lies(home: Home) -> None:
    write(home.lake / "reward" / "torn.parquet", b"PAR1" + PHONE.encode())
    assert scan(home, VALUES).places["lake/reward"] == 1


def test_the_ring_is_searched_and_empty_once_freed(home: Home) -> None:
    ring = Ring.create(home.ring(L1), 1 << 16)
    try:
        ring.append(pack(raw_inference(prompt=f"我的{PHONE}")))
        assert scan(home, VALUES).places["ring/l1"] == 1
        with Ring.attach(home.ring(L1), "reader") as reader:
            reader.free(ring.last_sequence)
        assert scan(home, VALUES).places["ring/l1"] == 0
    finally:
        ring.close()
        discard(home.ring(L1))


def test_a_value_over_the_edge_of_two_pieces_counts_once(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("afterbay.platform.leakscan._PIECE", 64)
    monkeypatch.setattr("afterbay.platform.leakscan._CHUNK", 16)
    for at in range(40, 80):
        write(home.log("sink"), b"." * at + PHONE.encode() + b"." * 100)
        assert scan(home, VALUES).places["run/sink.log"] == 1


def test_files_that_hold_the_values_on_purpose_are_skipped(home: Home) -> None:
    write(home.demo / "planted.json", PHONE.encode())
    assert scan(home, VALUES).hits == 1
    assert scan(home, VALUES, skip=[home.demo]).hits == 0


def test_a_scan_that_saw_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BadState, match="nothing to scan"):
        scan(Home(tmp_path / "elsewhere"), VALUES)


def test_no_value_is_in_the_report(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    write(home.log("sink"), PHONE.encode())
    with caplog.at_level(logging.DEBUG):
        report = scan(home, VALUES)
    assert report.hits == 1
    assert PHONE not in repr(report) + caplog.text
    assert set(report.forms) <= set(FORMS)


def test_short_needles_are_not_looked_for() -> None:
    assert Searcher(["abc"]).search(b"abc abc") == {}


def test_one_id_over_and_over_and_numbers_that_stand_alone_are_no_leak(home: Home) -> None:
    rows = {"turn": [1] * 500, "_offset": list(range(500)), "loss_mask": [[1] * 11] * 500}
    (home.lake / "inference").mkdir(parents=True)
    pq.write_table(pa.table(rows), home.lake / "inference" / "part.parquet")
    digits = {str(digit): digit + 16 for digit in range(10)}
    found = scan(
        home,
        ["34567890", WIDE],
        encode=lambda text: [digits.get(char, 1) for char in text],
    )
    assert found.hits == 0
