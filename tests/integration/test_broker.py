"""The embedded broker, for real: it starts, refuses, explains, and keeps its data."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from afterbay.platform.broker import EmbeddedBroker, is_up, require
from afterbay.platform.home import Home
from afterbay.platform.processes import free_port, lock_holder, wait_until
from afterbay.schemas.errors import BadState, Unavailable
from afterbay.streams.admin import topic_ids
from afterbay.streams.kafka import KafkaAddress
from tests.support.kafka import TEST_HEAP_MB, fresh_log, own_broker


def test_a_broker_of_the_session_answers_and_has_the_topics(log: KafkaAddress) -> None:
    assert is_up(log.bootstrap)
    assert "inference.completed.v2" in topic_ids(log)


def test_data_survive_a_kill(tmp_path: Path) -> None:
    with own_broker(tmp_path) as broker:
        log = fresh_log(broker.bootstrap)
        topic = log.topic("feedback.received.v2")
        producer = Producer({"bootstrap.servers": log.bootstrap, "acks": "all"})
        producer.produce(topic, b"kept", partition=0)
        assert producer.flush(10) == 0
        broker.kill()
        with pytest.raises(Unavailable, match=r"signal 9.*data are kept.*afterbay up"):
            broker.check()
        broker.start()
        assert _first_value(broker.bootstrap, topic) == b"kept"


def test_a_broker_that_was_killed_or_stopped_is_named_with_what_to_do(tmp_path: Path) -> None:
    with own_broker(tmp_path) as broker:
        bootstrap = broker.bootstrap
        broker.stop()
        with pytest.raises(Unavailable, match="start it again"):
            broker.check()
    with pytest.raises(Unavailable, match=rf"no Kafka answers at {bootstrap}.*afterbay up"):
        require(bootstrap, timeout_s=0.5)


def test_a_second_broker_on_the_same_folder_names_the_process_that_holds_it(tmp_path: Path) -> None:
    with own_broker(tmp_path) as broker:
        second = EmbeddedBroker(Home(tmp_path), free_port(), heap_mb=TEST_HEAP_MB)
        with pytest.raises(BadState, match=rf"is held by process {broker.pid} .*afterbay down"):
            second.start()
        assert broker.is_up()


def test_a_blocked_port_is_named_with_what_to_do(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(BadState, match=rf"port {port} on 127.0.0.1 is in use.*--broker-port"):
            EmbeddedBroker(Home(tmp_path), port, heap_mb=TEST_HEAP_MB).start()


def test_the_broker_dies_with_the_process_that_started_it(tmp_path: Path) -> None:
    code = (
        "import sys, signal; from pathlib import Path; from afterbay.platform.home import Home;"
        "from afterbay.platform.broker import EmbeddedBroker;"
        "broker = EmbeddedBroker(Home(Path(sys.argv[1])), heap_mb=512, quick=True);"
        "broker.start(); print('up', flush=True); signal.pause()"
    )
    lock = tmp_path / "broker" / "data" / ".lock"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as starter:
        assert starter.stdout is not None
        assert starter.stdout.readline() == "up\n"
        assert lock_holder(lock) is not None
        starter.kill()
    assert wait_until(lambda: lock_holder(lock) is None, 20)


def _first_value(bootstrap: str, topic: str) -> bytes | None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.subscribe([topic])
        message = consumer.poll(15)
        return message.value() if message is not None else None
    finally:
        consumer.close()
