"""Dead letters: newest first, counted, and known to be sent again by what the archive keeps."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from afterbay.lakehouse import archive, tables
from afterbay.lakehouse.deadletters import REDRIVE_HEADER, Wanted, facts, letters, redriven, summary
from afterbay.lakehouse.lake import Lake
from afterbay.lakehouse.ledger import TableLedger
from afterbay.lakehouse.merkle import Header
from afterbay.lakehouse.positions import SourcePartition
from afterbay.schemas.errors import BadSettings
from tests.support.lakes import NOON, Log

TOPIC = "feedback.received.v2"
SOURCE = SourcePartition(TOPIC, "id", 0)


@pytest.fixture
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    made = Lake(str(tmp_path_factory.mktemp("lake")))
    tables.ensure(made)
    return made


def put(lake: Lake, *letters: tuple[str, dict[str, Any]]) -> None:
    log = Log(lake, "deadletter.v2", "deadletter")
    for number, (name, fields) in enumerate(letters):
        plain = {"source_topic": TOPIC, "reason": "magic", "stage": "sink", "sealed": "A" * 400}
        log.put({"event_id": name, **plain, **fields}, ts=NOON + timedelta(minutes=number))


def archived(lake: Lake, *messages: archive.Message) -> None:
    rows = archive.rows(SOURCE, 0, messages)
    TableLedger(lake, "archive", "sink").append(rows, {SOURCE: 0}, {SOURCE: len(messages)})


def message(offset: int, header: Header, *, dead: bool = False) -> archive.Message:
    at = int(NOON.timestamp() * 1000) + offset
    return archive.Message(offset, at, b"k", (header,), b"value", None, dead)


def test_the_newest_come_first_with_the_size_of_what_is_sealed(lake: Lake) -> None:
    put(lake, ("a", {}), ("b", {"reason": "short"}), ("c", {"sealed": ""}))
    found = facts(lake, Wanted(), limit=2)
    assert [(f.event_id, f.reason, f.bytes) for f in found] == [
        ("c", "magic", 0),
        ("b", "short", 272),
    ]
    assert [f.at for f in found] == [NOON + timedelta(minutes=n) for n in (2, 1)]


def test_they_are_chosen_by_topic_reason_and_time_and_counted(lake: Lake) -> None:
    other = {"source_topic": "inference.completed.v2"}
    put(lake, ("a", {}), ("b", {"reason": "short"}), ("c", other), ("d", {}))

    def names(wanted: Wanted) -> list[str]:
        return [f.event_id for f in facts(lake, wanted)]

    assert names(Wanted(topic=TOPIC, reason="magic")) == ["d", "a"]
    assert names(Wanted(since=NOON + timedelta(minutes=2))) == ["d", "c"]
    assert summary(lake, Wanted()) == [
        (TOPIC, "magic", 2),
        (TOPIC, "short", 1),
        ("inference.completed.v2", "magic", 1),
    ]


def test_letters_are_found_by_id_or_refused(lake: Lake) -> None:
    put(lake, ("a", {"sealed": "x"}), ("b", {}))
    (letter,) = letters(lake, Wanted(ids=("a",)))
    assert (letter.event_id, letter.sealed) == ("a", "x")
    with pytest.raises(BadSettings, match=r"no dead letter c \(1 of 2 ids"):
        letters(lake, Wanted(ids=("a", "c")))


def test_a_letter_is_known_to_be_sent_again_whether_it_became_an_event_or_died_again(
    lake: Lake,
) -> None:
    archived(
        lake,
        message(0, (REDRIVE_HEADER, b"a")),
        message(1, (REDRIVE_HEADER, b"b"), dead=True),
        message(2, ("other", b"c")),
        message(3, (REDRIVE_HEADER, b"a")),
    )
    asked = [(name, TOPIC, NOON) for name in "abc"]
    first = {name: NOON + timedelta(milliseconds=n) for n, name in enumerate("ab")}
    assert redriven(lake, asked) == first
    assert redriven(lake, []) == {}
    assert redriven(lake, [("a", "reward.assigned.v2", NOON)]) == {}
