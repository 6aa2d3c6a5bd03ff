"""The flusher as a process on a real Kafka: killed anywhere, nothing is lost, doubled or clear."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from afterbay.platform.home import Home
from afterbay.platform.leakscan import scan
from afterbay.platform.records import RawFeedback, RawInference, pack
from afterbay.platform.ring import L1, Ring, discard
from afterbay.schemas.events import Event, FeedbackReceived, InferenceCompleted
from afterbay.streams.follow import Follower
from afterbay.streams.kafka import KafkaAddress, producer_config
from afterbay.streams.keys import ensure_keys
from afterbay.streams.keys.sealer import Place, Sealed, open_sealed
from afterbay.streams.keys.store import KeyStore
from afterbay.streams.keys.vault import Vault
from tests.support.raw_records import raw_feedback, raw_inference

PHONE, WIDE, MAIL = "13812345678", "１３９８７６５４３２１", "li.na@example.com"
TOPICS = ("inference.completed.v2", "feedback.received.v2", "deadletter.v2")


def by_character(text: str) -> list[int]:
    """A tokenizer: one id a character."""
    return [ord(char) + 1_000 for char in text]


def planted(number: int) -> RawInference:
    prompt = f"第{number}问：手机{PHONE}，邮箱{MAIL}"
    return raw_inference(
        number,
        prompt=prompt,
        prompt_ids=by_character(prompt),
        prompt_ends=list(range(1, len(prompt) + 1)),
        model=f"model for {MAIL}",
    )


class Installation:
    """A home, its ring and its event log; the flusher runs as the process it is in production."""

    def __init__(self, folder: Path, log: KafkaAddress) -> None:
        self.home = Home(folder / "home")
        self.home.prepare()
        ensure_keys(self.home.keys)
        self.address = log
        self.writer = Ring.create(self.home.ring(L1), 1 << 20)
        self.report = folder / "crash"

    def flusher(self, **environ: str) -> subprocess.Popen[bytes]:
        settings = {
            "AFTERBAY_HOME": str(self.home.path),
            "AFTERBAY_BOOTSTRAP": self.address.bootstrap,
            "AFTERBAY_TOPIC_PREFIX": self.address.prefix,
            "AFTERBAY_CRASH_REPORT": str(self.report),
        }
        with self.home.log("flusher").open("ab") as out:
            return subprocess.Popen(
                [sys.executable, "-m", "afterbay.platform.agents", "flusher"],
                env={**os.environ, **settings, **environ},
                stdout=out,
                stderr=out,
            )

    def run_until_empty(self) -> None:
        """A flusher's whole life: it empties the ring and stops on SIGTERM."""
        process = self.flusher()
        try:
            deadline = time.monotonic() + 60
            while self.writer.used and process.poll() is None:
                assert time.monotonic() < deadline, "the ring was not emptied in 60 s"
                time.sleep(0.02)
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        finally:
            process.kill()
            process.wait()

    def events(self) -> list[Event]:
        follower = Follower(self.address, TOPICS)
        try:
            found: list[Event] = []
            while not follower.caught_up:
                found += [followed.event for followed in follower.poll(0.2)]
            return found
        finally:
            follower.close()

    def close(self) -> None:
        self.writer.close()
        discard(self.home.ring(L1))


@pytest.fixture
def place(tmp_path: Path, log: KafkaAddress) -> Iterator[Installation]:
    made = Installation(tmp_path, log)
    yield made
    made.close()


@pytest.mark.parametrize(
    "crash",
    ["flusher.keys_committed", "outbox.produced", "outbox.committed", "flusher.committed"],
)
def test_killed_between_two_commits_nothing_is_lost_or_doubled(
    place: Installation, crash: str
) -> None:
    sent: list[RawInference | RawFeedback] = [planted(n) for n in range(5)]
    sent += [raw_feedback(n, comment=f"请回电{PHONE}") for n in range(5)]
    for record in sent:
        place.writer.append(pack(record))
    dying = place.flusher(AFTERBAY_CRASH_AT=crash)
    assert dying.wait(60) == -signal.SIGKILL
    assert place.report.read_text() == f"{crash}\n"
    place.run_until_empty()
    arrived = Counter(event.event_id for event in place.events() if hasattr(event, "event_id"))
    assert arrived == Counter(record.event_id for record in sent)


def test_what_left_can_be_opened_by_the_vault_and_read_by_nobody_else(place: Installation) -> None:
    inference, feedback = planted(1), raw_feedback(1, comment=f"我的手机是{WIDE}")
    for record in (inference, feedback):
        place.writer.append(pack(record))
    place.run_until_empty()
    by_id = {
        e.event_id: e
        for e in place.events()
        if isinstance(e, InferenceCompleted | FeedbackReceived)
    }
    event, opinion = by_id[inference.event_id], by_id[feedback.event_id]
    vault, store = Vault.load(place.home.keys), KeyStore(place.home.keystore)
    cases = (
        (event, inference.subject, PHONE),
        (opinion, f"inference:{feedback.inference_id}", WIDE),
    )
    for carrier, subject, value in cases:
        finding = next(f for f in carrier.pii if f.kind == "phone")
        where = Place(carrier.event_id, finding.field, finding.ordinal, finding.kind, subject)
        sealed = Sealed(finding.key_id, finding.ciphertext)
        assert open_sealed(vault, store, where, sealed).decode() == value
    store.close()


def test_the_scan_finds_a_leak_in_compressed_segments_and_none_of_the_flushers(
    place: Installation,
) -> None:
    for number in range(50):
        place.writer.append(pack(planted(number)))
    place.writer.append(pack(raw_feedback(comment=f"我的手机是{WIDE}")))
    place.run_until_empty()
    values = (PHONE, WIDE, MAIL)
    clean = scan(place.home, values, address=place.address, encode=by_character)
    assert clean.places["kafka/inference.completed.v2"] == 0
    assert clean.places["ring/l1"] == 0
    assert clean.hits == 0
    leak(place.address, "reward.assigned.v2", f"{PHONE} {WIDE} {by_character(MAIL)}".encode() * 20)
    found = scan(place.home, values, address=place.address, encode=by_character)
    assert found.places["kafka/reward.assigned.v2"] >= 60
    assert found.values == 3
    assert (
        sum(hits for name, hits in found.places.items() if name != "kafka/reward.assigned.v2") == 0
    )


def leak(address: KafkaAddress, topic: str, value: bytes) -> None:
    """Write `value` in clear, in a compressed batch of a transaction that is then aborted."""
    producer = Producer(producer_config(address, "leaker"))
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(address.topic(topic), value, b"key")
    producer.flush(30)
    producer.abort_transaction(30)
