"""After a restore: each partition goes back to its first missing event, if that is safe."""

from __future__ import annotations

import pytest

from afterbay.lakehouse import tables
from afterbay.lakehouse.commits import TxnLog
from afterbay.lakehouse.lake import Lake
from afterbay.lakehouse.ledger import PartitionsFenced, TableLedger
from afterbay.lakehouse.positions import SourcePartition
from afterbay.lakehouse.prove import prove
from afterbay.lakehouse.rewinding import Step, apply, plan, plan_to
from afterbay.lakehouse.watermarks import OffsetReader
from afterbay.schemas.errors import BadSettings, BadState
from tests.support.lakes import Log
from tests.support.whole_lake import FEEDBACK, INFERENCES, WholeLake, filled

FEEDBACK_SOURCE = SourcePartition(FEEDBACK, f"id-{FEEDBACK}", 0)


@pytest.fixture
def whole(lake: Lake) -> WholeLake:
    return filled(lake)


@pytest.fixture
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return Lake(str(tmp_path_factory.mktemp("lake")))


def restore(lake: Lake, table: str, back: int) -> None:
    """What an operator does with any Delta client."""
    handle = tables.open(lake, table)
    handle.restore(handle.version() - back)


def positions(lake: Lake, table: str) -> dict[str, int]:
    return dict(TxnLog(lake, table).advance(tables.open(lake, table).version()))


def test_a_table_that_was_not_restored_has_nothing_to_go_back_to(whole: WholeLake) -> None:
    for table in tables.NAMES:
        assert plan(whole.lake, table) == ()


def test_a_restored_table_goes_back_to_its_first_missing_event(whole: WholeLake) -> None:
    held = {r["_offset"]: r["event_id"] for r in whole.rows["feedback"]}
    restore(whole.lake, "feedback", 2)  # the last flush: its rows, and the move past their end
    (step,) = plan(whole.lake, "feedback")
    left = tables.open(whole.lake, "feedback").to_pyarrow_table().column("_offset").to_pylist()
    gone = set(held) - set(left)
    assert (step.source, step.to, step.missing) == (FEEDBACK_SOURCE, min(gone), len(gone))
    assert step.last == max(left) < step.to
    apply(whole.lake, "feedback", [step])
    assert positions(whole.lake, "feedback")[FEEDBACK_SOURCE.txn_id("sink")] == step.to
    assert plan(whole.lake, "feedback") == ()
    assert prove(whole.lake, ["feedback"]).differences == ()
    assert prove(whole.lake, ["feedback"]).behind["feedback"] == len(gone)


def test_without_a_rewind_prove_names_what_the_restore_took(whole: WholeLake) -> None:
    restore(whole.lake, "feedback", 2)
    assert [d.kind for d in prove(whole.lake, ["feedback"]).differences] == ["missing"]


def test_the_dead_letters_go_back_for_the_topic_whose_letter_is_gone(whole: WholeLake) -> None:
    handle = tables.open(whole.lake, "deadletter")
    first = next(
        v
        for v in range(handle.version(), 0, -1)
        if INFERENCES not in topics_of(whole.lake, "deadletter", v)
    )
    handle.restore(first)
    steps = plan(whole.lake, "deadletter")
    assert INFERENCES in {step.source.topic for step in steps}
    apply(whole.lake, "deadletter", steps)
    assert prove(whole.lake, ["deadletter"]).differences == ()


def topics_of(lake: Lake, table: str, version: int) -> set[str]:
    found = tables.open(lake, table, version).to_pyarrow_table(columns=["_topic"])
    return set(found.column("_topic").to_pylist())


def test_the_archive_goes_back_to_the_end_of_what_its_rows_cover(whole: WholeLake) -> None:
    ends = positions(whole.lake, "archive")
    restore(whole.lake, "archive", 1)
    (step,) = plan(whole.lake, "archive")
    assert ends[step.source.txn_id("sink")] == step.held > step.to == step.last + 1
    with pytest.raises(BadState, match="the archive ends at"):
        move_back_and_plan(whole.lake, step)


def move_back_and_plan(lake: Lake, step: Step) -> None:
    apply(lake, "archive", [step])
    assert prove(lake, ["archive"]).differences == ()
    plan(lake, "deadletter")


def test_experience_goes_back_to_the_positions_of_the_version_restored_to(whole: WholeLake) -> None:
    before = positions(whole.lake, "experience")
    restore(whole.lake, "experience", 1)
    assert prove(whole.lake, ["experience"]).differences != ()
    steps = plan(whole.lake, "experience")
    apply(whole.lake, "experience", steps)
    proof = prove(whole.lake, ["experience"])
    assert proof.differences == ()
    assert proof.behind["experience"] > 0
    assert positions(whole.lake, "experience") != before


def test_rows_past_a_hole_are_refused_because_they_would_be_doubled(whole: WholeLake) -> None:
    first = whole.rows["feedback"][0]["event_id"]
    tables.open(whole.lake, "feedback").delete(f"event_id = '{first}'")
    with pytest.raises(BadState, match=r"lacks the event at \d+ and has a row at .* restore"):
        plan(whole.lake, "feedback")


def test_a_hole_in_the_archive_is_refused(whole: WholeLake) -> None:
    first = whole.rows["feedback"][0]["event_id"]
    tables.open(whole.lake, "archive").delete(f"_event_id = '{first}'")
    with pytest.raises(BadState, match="does not follow the one before"):
        plan(whole.lake, "archive")


def test_an_offset_given_by_hand_may_double_and_leave_out_nothing(whole: WholeLake) -> None:
    restore(whole.lake, "feedback", 2)
    (step,) = plan(whole.lake, "feedback")
    for wrong in (step.last, step.to + 1):
        with pytest.raises(BadSettings, match=rf"can go back to {step.last + 1} \.\. {step.to}"):
            plan_to(whole.lake, "feedback", FEEDBACK, 0, wrong)
    assert plan_to(whole.lake, "feedback", FEEDBACK, 0, step.to) == (step,)
    with pytest.raises(BadSettings, match="expected one"):
        plan_to(whole.lake, "feedback", FEEDBACK, 7, step.to)


def test_a_plan_that_a_writer_overtook_is_not_committed(whole: WholeLake) -> None:
    restore(whole.lake, "feedback", 2)
    (step,) = plan(whole.lake, "feedback")
    ledger = TableLedger(whole.lake, "feedback", "sink")
    ledger.append(None, {step.source: step.held}, {step.source: step.held + 5})
    with pytest.raises(PartitionsFenced):
        apply(whole.lake, "feedback", [step])


def test_a_ledger_rewinds_back_only(whole: WholeLake) -> None:
    ledger = TableLedger(whole.lake, "feedback", "sink")
    held = ledger.next_offsets([FEEDBACK_SOURCE])
    with pytest.raises(BadState, match="only moves back"):
        ledger.rewind(held, {FEEDBACK_SOURCE: held[FEEDBACK_SOURCE] + 1})


def test_an_unknown_table_is_refused_with_the_known_ones(lake: Lake) -> None:
    with pytest.raises(BadSettings, match="known: inference"):
        plan(lake, "turns")


def test_who_reads_a_rewound_table_does_not_go_back_with_it(lake: Lake) -> None:
    tables.ensure(lake)
    log = Log(lake, FEEDBACK, "feedback")
    reader = OffsetReader(lake, "feedback", "sink", ["event_id"])
    for name in "ab":
        log.put({"event_id": name, "inference_id": name})
    after = reader.read({}).next
    restore(lake, "feedback", 1)
    TableLedger(lake, "feedback", "sink").rewind({log.source: 2}, {log.source: 1})
    assert reader.read(after).next == after
    log.next = 1
    log.put({"event_id": "b", "inference_id": "b"})
    again = reader.read(after)
    assert (again.rows.num_rows, again.next) == (0, after)
