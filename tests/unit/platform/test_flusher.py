"""The flusher over a real ring and key store, and an outbox in memory that fails on demand."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from afterbay.platform.cleaning import Cleaner
from afterbay.platform.flusher import Flusher, FlusherSettings
from afterbay.platform.records import RawRecord, pack
from afterbay.platform.ring import Ring
from afterbay.schemas.codec import encode
from afterbay.schemas.errors import AfterbayError, BadState, OutcomeUnknown, Retryable, Unavailable
from afterbay.schemas.events import Cursor, DeadLetter, Event, InferenceCompleted
from afterbay.streams.keys.sealer import Place, Sealed, Sealer, open_sealed
from afterbay.streams.keys.store import DataKey, HourKey, KeyStore
from afterbay.streams.keys.vault import Vault
from afterbay.streams.metrics import Metrics
from afterbay.streams.pii import Redactor
from tests.support.manual_clock import ManualClock
from tests.support.raw_records import raw_feedback, raw_inference

PHONE = "13812345678"


class MemoryOutbox:
    """Commits into lists; `faults` are raised before (or, `after`, behind) the next commits."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.cursor: Cursor | None = None
        self.faults: list[AfterbayError] = []
        self.after: list[AfterbayError] = []

    def open(self) -> Cursor | None:
        return self.cursor

    def commit(self, events: Sequence[Event], cursor: Cursor) -> None:
        for event in events:
            encode(event)
        if self.faults:
            raise self.faults.pop()
        self.events += events
        self.cursor = cursor
        if self.after:
            raise self.after.pop()

    def close(self) -> None:
        pass


class Node:
    """Ring, key store and outbox of one node; they outlive a flusher that dies."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "l1.ring"
        self.writer = Ring.create(self.path, 1 << 22)
        self.store = KeyStore(folder / "keystore.sqlite")
        self.vault = Vault(X25519PrivateKey.generate())
        self.outbox = MemoryOutbox()
        self.clock = ManualClock()
        self.metrics = Metrics("flusher")
        self.alive: list[Flusher] = []

    def put(self, *records: RawRecord) -> None:
        for record in records:
            self.writer.append(pack(record))

    def start(self, batch_records: int = 256, store: KeyStore | None = None) -> Flusher:
        """A flusher process after its start; an earlier one is gone."""
        self.stop()
        sealer = Sealer(self.vault.public(), store or self.store, "flusher", self.clock)
        flusher = Flusher(
            attach=lambda: Ring.attach(self.path, "reader"),
            outbox=self.outbox,
            cleaner=Cleaner(Redactor(), sealer, self.clock),
            sealer=sealer,
            settings=FlusherSettings(batch_records=batch_records),
            metrics=self.metrics,
        )
        flusher.open()
        self.alive.append(flusher)
        return flusher

    def stop(self) -> None:
        for flusher in self.alive:
            flusher.close()
        self.alive.clear()

    @property
    def ids(self) -> list[str]:
        return [e.event_id for e in self.outbox.events if isinstance(e, InferenceCompleted)]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path)
    yield made
    made.stop()
    made.writer.close()
    made.store.close()


def test_records_leave_once_in_order_and_the_ring_is_empty(node: Node) -> None:
    records = [raw_inference(n) for n in range(10)]
    node.put(*records)
    flusher = node.start(batch_records=4)
    flusher.drain()
    assert node.ids == [r.event_id for r in records]
    assert node.writer.used == 0
    assert not flusher.step()


def test_no_clear_byte_stays_in_the_ring(node: Node) -> None:
    node.put(raw_inference(prompt=f"我的{PHONE}"))
    assert PHONE.encode() in node.path.read_bytes()
    node.start().drain()
    assert PHONE.encode() not in node.path.read_bytes()


def test_both_kinds_of_record_find_their_topic(node: Node) -> None:
    node.put(raw_inference(), raw_feedback(comment=f"call {PHONE}"))
    node.start().drain()
    assert [e.TOPIC for e in node.outbox.events] == [
        "inference.completed.v2",
        "feedback.received.v2",
    ]
    assert 'afterbay_flusher_findings_total{kind="phone"} 1.0' in node.metrics.text().decode()


def test_a_refused_transaction_is_made_again_with_nothing_lost_or_doubled(node: Node) -> None:
    node.put(raw_inference(1), raw_inference(2))
    node.outbox.faults = [Unavailable("the broker is away")]
    flusher = node.start()
    with pytest.raises(Retryable):
        flusher.step()
    assert node.writer.used > 0
    flusher.drain()
    assert len(node.ids) == len(set(node.ids)) == 2


@pytest.mark.parametrize("happened", [True, False])
def test_after_an_unknown_outcome_the_cursor_decides(node: Node, happened: bool) -> None:
    node.put(raw_inference(1), raw_inference(2))
    fault = OutcomeUnknown("who knows")
    (node.outbox.after if happened else node.outbox.faults).append(fault)
    flusher = node.start()
    with pytest.raises(OutcomeUnknown):
        flusher.step()
    flusher.close()  # what the runner does
    flusher.open()
    flusher.drain()
    assert len(node.ids) == len(set(node.ids)) == 2
    assert node.writer.used == 0


class Died(Exception):
    """Stands for kill -9 at a named place."""


@pytest.mark.parametrize("place", ["flusher.keys_committed", "flusher.committed"])
def test_died_between_two_commits_nothing_is_lost_or_doubled(
    node: Node, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(name: str) -> None:
        if name == place:
            raise Died(name)

    node.put(raw_inference(1), raw_inference(2, prompt=PHONE))
    first = node.start()
    with monkeypatch.context() as patch:
        patch.setattr("afterbay.platform.flusher.crash_points.reach", die)
        with pytest.raises(Died):
            first.step()
    node.start().drain()
    assert len(node.ids) == len(set(node.ids)) == 2
    assert node.writer.used == 0


def test_a_cursor_of_another_ring_is_not_taken_for_ours(node: Node) -> None:
    node.outbox.cursor = Cursor(source="flusher", ring_id="0" * 32, sequence=1 << 40)
    node.put(raw_inference())
    node.start().drain()
    assert len(node.ids) == 1


class AwayStore(KeyStore):
    """A key store whose disk is full."""

    def add(self, hour_keys: Sequence[HourKey], data_keys: Sequence[DataKey]) -> None:
        raise Unavailable("the disk is full")


def test_events_wait_for_their_keys(node: Node, tmp_path: Path) -> None:
    node.put(raw_inference(prompt=PHONE))
    away = AwayStore(tmp_path / "away.sqlite")
    flusher = node.start(store=away)
    with pytest.raises(Unavailable):
        flusher.step()
    assert node.outbox.events == []
    assert node.writer.used > 0
    node.start().drain()
    away.close()
    (event,) = node.outbox.events
    assert isinstance(event, InferenceCompleted)
    (finding, ids) = event.pii
    place = Place(event.event_id, "prompt", 0, "phone", event.subject)
    sealed = Sealed(finding.key_id, finding.ciphertext)
    assert open_sealed(node.vault, node.store, place, sealed) == PHONE.encode()
    assert ids.kind == "token_ids"


def test_an_event_no_message_can_hold_is_quarantined_and_the_rest_goes_out(node: Node) -> None:
    long = raw_inference(2, prompt="我" * 900_000, prompt_ids=None)
    node.put(raw_inference(1), long, raw_inference(3))
    node.start().drain()
    kinds = [type(event) for event in node.outbox.events]
    assert kinds == [InferenceCompleted, DeadLetter, InferenceCompleted]
    letter = node.outbox.events[1]
    assert isinstance(letter, DeadLetter)
    assert letter.reason == "encode"
    assert node.store.data_key(letter.key_id) is not None


def test_a_step_before_open_says_what_to_do(node: Node) -> None:
    flusher = node.start()
    flusher.close()
    flusher.close()
    with pytest.raises(BadState, match="open"):
        flusher.step()


def test_an_idle_flusher_drops_its_keys_when_the_hour_is_over(node: Node) -> None:
    node.put(raw_inference(prompt=PHONE))
    flusher = node.start()
    flusher.drain()
    assert flusher._sealer._live
    node.clock.advance(3_600)
    flusher.step()
    assert not flusher._sealer._live
