"""The sink as a process on a real Kafka: poison, quiet ends, a second sink, a log cut short."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from afterbay.lakehouse import tables
from afterbay.lakehouse.commits import TxnLog
from afterbay.lakehouse.prove import prove
from afterbay.schemas.codec import encode
from afterbay.schemas.topics import ARCHIVE_TABLE
from afterbay.streams.admin import EndOffsets
from afterbay.streams.agent import EXIT_STATE
from afterbay.streams.kafka import KafkaAddress
from tests.support.agents import PATIENCE_S, Agents, all_in, wait_until
from tests.support.events import Sender, inference

TOPIC = "inference.completed.v2"


@pytest.fixture
def agents(tmp_path: Path, log: KafkaAddress) -> Agents:
    return Agents(tmp_path / "home", log)


def produce(log: KafkaAddress, *values: bytes | None) -> None:
    """Put bytes on a topic as any other program could."""
    producer = Producer({"bootstrap.servers": log.bootstrap})
    for value in values:
        producer.produce(log.topic(TOPIC), value, b"k")
    assert producer.flush(30) == 0


def delete_what_is_there(log: KafkaAddress) -> int:
    """What retention does, at once; how many partitions lost something."""
    admin = AdminClient({"bootstrap.servers": log.bootstrap})
    ends = EndOffsets(log, [TOPIC])()
    cut = [TopicPartition(log.topic(TOPIC), p.partition, end) for p, end in ends.items()]
    for future in admin.delete_records(cut).values():
        future.result()
    return sum(end > 0 for end in ends.values())


def test_poison_among_good_messages_lands_in_the_dead_letters_and_costs_nothing_else(
    agents: Agents, log: KafkaAddress
) -> None:
    good = [inference(n) for n in range(20)]
    thirty_million_items = bytes([0x80, 0xCE, 0xCE, 0x1C])
    poison: list[bytes | None] = [
        None,
        b"abcd",
        b"\x00" * 40,
        b"\xc3\x01" + b"\xff" * 30,
        encode(good[0])[:-9],
        encode(good[0]) + b"\x00\x01",
        encode(good[0])[:10] + thirty_million_items * 2,
        encode(good[0])[:10] + b"\xff" * 1_000,
    ]
    sender = Sender(log)
    sender.send(*good[:10])
    produce(log, *poison)
    sender.send(*good[10:])
    with agents.running("sink"):
        all_in(agents, "inference", "event_id", [event.event_id for event in good])
        wait_until("the dead letters", lambda: len(agents.column("deadletter", "reason")) >= 8)
    assert sorted(agents.column("deadletter", "reason")) == sorted(
        ["tombstone", "short", "magic", "fingerprint", "undecodable", "trailing"]
        + ["undecodable"] * 2
    )
    assert prove(agents.lake).differences == ()


def test_a_quiet_partitions_end_is_recorded_so_that_retention_does_not_look_like_a_loss(
    agents: Agents, log: KafkaAddress
) -> None:
    sent = [inference(n) for n in range(10)]
    Sender(log).send(*sent)
    ends = {p: v for p, v in EndOffsets(log, [TOPIC])().items() if v}

    def positions(table: str) -> dict[str, int]:
        return dict(TxnLog(agents.lake, table).advance(tables.open(agents.lake, table).version()))

    def caught_up() -> bool:
        names = ("inference", ARCHIVE_TABLE, "deadletter")
        held = [positions(name) for name in names]
        return all(h.get(p.txn_id("sink")) == end for h in held for p, end in ends.items())

    with agents.running("sink"):
        wait_until("every table stands at the end, control records included", caught_up)
    assert "gap" in agents.column(ARCHIVE_TABLE, "_kind")
    with agents.running("sink"):
        pass
    assert sorted(agents.column("inference", "event_id")) == sorted(e.event_id for e in sent)
    assert prove(agents.lake).differences == ()


def test_a_table_that_takes_no_files_for_a_while_costs_no_event(
    agents: Agents, log: KafkaAddress
) -> None:
    sender = Sender(log)
    first, second = ([inference(n) for n in range(20)] for _ in range(2))
    sender.send(*first)
    said = agents.home / "run" / "sink.log"
    with agents.running("sink"):
        all_in(agents, "inference", "event_id", [event.event_id for event in first])
        (day,) = Path(agents.lake.uri("inference")).glob("date=*")
        day.rename(day.with_name("away"))
        day.touch()  # a file where the folder was: nobody, not even root, writes below it
        sender.send(*second)
        wait_until("the sink says so", lambda: "table inference" in said.read_text())
        day.unlink()
        day.with_name("away").rename(day)
        wanted = [event.event_id for event in (*first, *second)]
        all_in(agents, "inference", "event_id", wanted)
    assert sorted(agents.column("inference", "event_id")) == sorted(wanted)
    assert prove(agents.lake).differences == ()


def test_a_second_sink_takes_its_share_and_each_event_is_still_there_once(
    agents: Agents, log: KafkaAddress
) -> None:
    sender = Sender(log)
    sent: list[str] = []
    said = agents.home / "run" / "sink.log"

    def send_more() -> None:
        more = [inference(n) for n in range(20)]
        sender.send(*more)
        sent.extend(event.event_id for event in more)

    with agents.running("sink"):
        send_more()
        all_in(agents, "inference", "event_id", sent)
        with agents.running("sink"):
            for _ in range(10):
                send_more()
            all_in(agents, "inference", "event_id", sent)
            # one took all, then two took shares
            wait_until("both own some", lambda: said.read_text().count("took over") >= 3)
            send_more()
            all_in(agents, "inference", "event_id", sent)
        send_more()
        all_in(agents, "inference", "event_id", sent)
    assert sorted(agents.column("inference", "event_id")) == sorted(sent)
    assert prove(agents.lake).differences == ()


def test_a_log_cut_past_the_position_stops_the_sink_and_names_the_range(
    agents: Agents, log: KafkaAddress
) -> None:
    sender = Sender(log)
    sender.send(inference(1))
    with agents.running("sink"):
        wait_until("one row", lambda: len(agents.column("inference", "event_id")) == 1)
    for _ in range(5):
        sender.send(*(inference(n) for n in range(10)))
    delete_what_is_there(log)
    process = agents.start("sink")
    try:
        assert process.wait(PATIENCE_S) == EXIT_STATE
    finally:
        process.kill()
        process.wait()
    said = (agents.home / "run" / "sink.log").read_text()
    assert "OffsetGap" in said
    assert "goes on at" in said


def test_a_log_that_was_cut_before_the_first_sink_came_is_read_from_where_it_begins(
    agents: Agents, log: KafkaAddress
) -> None:
    sender = Sender(log)
    sender.send(*(inference(n) for n in range(10)))
    begun = 3 * delete_what_is_there(log)  # commits that let three tables begin there
    kept = [inference(n) for n in range(10)]
    sender.send(*kept)
    agents.die("sink", "ledger.after_commit:1")  # some tables begin there, the archive does not
    agents.die(
        "sink", f"ledger.after_commit:{begun}"
    )  # one was made before; of the flush, the archive's
    with agents.running("sink"):
        all_in(agents, "inference", "event_id", [event.event_id for event in kept])
    assert sorted(agents.column("inference", "event_id")) == sorted(e.event_id for e in kept)
    assert prove(agents.lake).differences == ()
