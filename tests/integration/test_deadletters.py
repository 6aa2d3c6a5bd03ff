"""Dead letters on a real Kafka: opened on record only, and sent again once whatever happens."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from afterbay.lakehouse import tables
from afterbay.lakehouse.deadletters import REDRIVE_HEADER
from afterbay.lakehouse.prove import prove
from afterbay.platform import apikeys
from afterbay.platform.cleaning import Cleaner
from afterbay.platform.records import pack
from afterbay.schemas import ids
from afterbay.schemas.clock import SystemClock
from afterbay.schemas.codec import encode
from afterbay.streams.kafka import KafkaAddress
from afterbay.streams.keys.sealer import Sealer
from afterbay.streams.keys.store import KeyStore
from afterbay.streams.keys.vault import VaultPublic
from afterbay.streams.pii import Redactor
from tests.support.agents import Agents, all_in, wait_until
from tests.support.events import Sender, inference
from tests.support.raw_records import raw_feedback

TOPIC = "inference.completed.v2"
PHONE = "13812345678"
CLOCK = SystemClock()


@pytest.fixture
def agents(tmp_path: Path, log: KafkaAddress) -> Agents:
    return Agents(tmp_path / "home", log)


@pytest.fixture
def key(agents: Agents) -> str:
    """An operator's key."""
    keys = agents.home / "keys" / "api_keys.json"
    return apikeys.create(keys, "operator", CLOCK.now(), [apikeys.DECRYPT]).text


def afterbay(agents: Agents, *arguments: str, **extra: str) -> subprocess.CompletedProcess[str]:
    """The command as a person types it."""
    return subprocess.run(
        [sys.executable, "-m", "afterbay.platform.cli", *arguments],
        env={
            **os.environ,
            "AFTERBAY_HOME": str(agents.home),
            "AFTERBAY_BOOTSTRAP": agents.log.bootstrap,
            "AFTERBAY_TOPIC_PREFIX": agents.log.prefix,
            **extra,
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def answer(agents: Agents, *arguments: str, **extra: str) -> Any:
    done = afterbay(agents, *arguments, "--json", **extra)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def poison(log: KafkaAddress, *values: bytes | None) -> None:
    producer = Producer({"bootstrap.servers": log.bootstrap})
    for number, value in enumerate(values):
        producer.produce(log.topic(TOPIC), value, f"k{number}".encode(), headers=[("h", b"v")])
    assert producer.flush(30) == 0


def by_reason(agents: Agents) -> dict[str, str]:
    found = tables.open(agents.lake, "deadletter").to_pyarrow_table(columns=["reason", "event_id"])
    rows: list[dict[str, str]] = found.to_pylist()
    return {row["reason"]: row["event_id"] for row in rows}


def sent_again(agents: Agents) -> list[tuple[bytes, bytes, dict[str, bytes]]]:
    """Key, value and headers of what is on the topic with our header, as a consumer sees it."""
    from confluent_kafka import Consumer, TopicPartition

    from afterbay.streams.admin import EndOffsets
    from afterbay.streams.kafka import consumer_config

    ends = EndOffsets(agents.log, [TOPIC])()
    consumer = Consumer(consumer_config(agents.log, "test"))
    consumer.assign([TopicPartition(agents.log.topic(TOPIC), p.partition, 0) for p in ends])
    found, ended = [], 0
    while ended < len(ends):
        for message in consumer.consume(100, 0.5):
            if message.error() is not None:
                ended += 1
                continue
            headers = dict(message.headers() or [])
            if REDRIVE_HEADER in headers:
                found.append((message.key(), message.value(), headers))
    consumer.close()
    return found  # type: ignore[return-value]  # confluent-kafka types keys as text or bytes


def accesses(agents: Agents) -> list[tuple[str, str, bool]]:
    found = tables.open(agents.lake, "access").to_pyarrow_table(
        columns=["actor", "action", "allowed"]
    )
    return [(row["actor"], row["action"], row["allowed"]) for row in found.to_pylist()]


def test_poison_is_listed_opened_on_record_and_sent_again_once_although_killed(
    agents: Agents, log: KafkaAddress, key: str
) -> None:
    good = [inference(n) for n in range(4)]
    trailing = encode(good[0]) + b"\x00\x01"
    Sender(log).send(*good)
    poison(log, trailing, b"abcd", None)
    with agents.running("sink"):
        wait_until("three dead letters", lambda: len(by_reason(agents)) == 3)
        letters = by_reason(agents)
        listed = answer(agents, "deadletter", "list", "--topic", TOPIC)
        assert {row["event_id"]: row["reason"] for row in listed["letters"]} == {
            name: reason for reason, name in letters.items()
        }
        assert {(row["reason"], row["count"]) for row in listed["summary"]} == {
            (reason, 1) for reason in letters
        }

        show = ("deadletter", "show", letters["trailing"], "--contents")
        plain = answer(agents, "apikey", "create", "client")["key"]
        refused = [
            afterbay(agents, *show, "--reason", "ticket 7"),
            afterbay(agents, *show, "--reason", "ticket 7", AFTERBAY_API_KEY=plain),
            afterbay(agents, *show, AFTERBAY_API_KEY=key),
        ]
        assert [done.returncode for done in refused] == [1, 1, 1]
        assert all("on record" in done.stderr and not done.stdout for done in refused)
        opened = answer(agents, *show, "--reason", "ticket 7", AFTERBAY_API_KEY=key)["contents"]
        assert base64.b64decode(opened["value_base64"]) == trailing
        assert (opened["key"], opened["headers"]) == ("k0", [["h", "v"]])

        def again(name: str, crash_at: str = "") -> subprocess.CompletedProcess[str]:
            extra = {"AFTERBAY_CRASH_AT": crash_at} if crash_at else {}
            command = ("deadletter", "redrive", letters[name], "--why", "fixed", "--json")
            return afterbay(agents, *command, AFTERBAY_API_KEY=key, **extra)

        # the first transaction of the command is the audit event's, the second sends
        assert again("trailing", "outbox.produced:2").returncode == -signal.SIGKILL
        assert again("short", "outbox.committed:2").returncode == -signal.SIGKILL
        outcomes = {name: outcome(again(name)) for name in letters}
        assert outcomes == {"trailing": "sent", "short": "sent before", "tombstone": "refused"}
        assert outcome(again("trailing")) == "sent before"
        wait_until("both again, dead again", lambda: len(agents.column("deadletter", "_ts")) == 5)
        attempts = [("unknown", "reveal", False)] + [("key", "reveal", False)] * 2
        attempts += [("key", "reveal", True)] + [("key", "redrive", True)] * 6
        wait_until("every attempt on record", lambda: len(accesses(agents)) == len(attempts))
    assert sorted((a.partition("_")[0], b, c) for a, b, c in accesses(agents)) == sorted(attempts)
    expected = {
        (b"k0", trailing, letters["trailing"].encode()),
        (b"k1", b"abcd", letters["short"].encode()),
    }
    found = sent_again(agents)
    assert len(found) == 2
    assert {(k, v, headers[REDRIVE_HEADER]) for k, v, headers in found} == expected
    assert all(headers["h"] == b"v" for _, _, headers in found)
    assert prove(agents.lake).differences == ()


def outcome(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)
    return str(found["outcome"])


def test_what_the_flusher_quarantined_goes_out_as_the_event_it_makes_now(
    agents: Agents, log: KafkaAddress, key: str
) -> None:
    store = KeyStore(agents.home / "keystore.sqlite")
    sealer = Sealer(VaultPublic.load(agents.home / "keys"), store, "flusher", CLOCK)
    cleaner = Cleaner(Redactor(), sealer, CLOCK)
    now = datetime.now(UTC)
    record = raw_feedback(
        event_id=ids.new_id(now), inference_id=ids.new_id(now), comment=f"请回电{PHONE}"
    )
    late = cleaner.quarantine(pack(record), "redaction_failed")
    noise = cleaner.quarantine(b"no record", "undecodable")
    sealer.commit()
    store.close()
    sender = Sender(log)
    sender.send(late, noise)
    with agents.running("sink"):
        all_in(agents, "deadletter", "event_id", [late.event_id, noise.event_id])
        command = ("deadletter", "redrive", late.event_id, noise.event_id, "--why", "fixed")
        for expected in ("sent", "sent before"):
            done = answer(agents, *command, AFTERBAY_API_KEY=key)
            assert {o["event_id"]: o["outcome"] for o in done} == {
                late.event_id: expected,
                noise.event_id: "refused",
            }
        all_in(agents, "feedback", "event_id", [record.event_id])
        wait_until(
            "the list says so",
            lambda: (
                {
                    row["event_id"]: row["redriven"] is not None
                    for row in answer(agents, "deadletter", "list")["letters"]
                }
                == {late.event_id: True, noise.event_id: False}
            ),
        )
    (comment,) = agents.column("feedback", "comment")
    assert PHONE not in comment
    assert prove(agents.lake).differences == ()
    show = ("deadletter", "show", late.event_id, "--contents", "--reason", "look")
    opened = answer(agents, *show, AFTERBAY_API_KEY=key)
    assert opened["contents"]["record"]["comment"] == f"请回电{PHONE}"
