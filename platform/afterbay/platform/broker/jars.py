"""Put the pinned jars of Apache Kafka together, checked byte for byte.

In:   jars.lock beside this file (`infra/kafka/jars.lock` is a link to it): coordinate and SHA-256
Out:  the class path: `KAFKA_HOME/libs` if that is set, else the jars in jgo's cache
Refuses: a jar whose SHA-256 is not the locked one (BadState); Maven Central out of reach while the
      cache is empty (Unavailable)
Never: takes a jar that is not in the lock, also not one that a POM asks for
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from afterbay.schemas.errors import BadSettings, BadState, Unavailable

_MAVEN_FOLDERS = "~/.cache/jgo and ~/.m2/repository"


@dataclass(frozen=True, slots=True)
class Jar:
    """One locked jar. Read from jars.lock."""

    coordinate: str
    """group:artifact:version"""
    sha256: str
    """Lower-case hex."""

    @property
    def file_name(self) -> str:
        """Name of the file in a class path."""
        _, artifact, version = self.coordinate.split(":")
        return f"{artifact}-{version}.jar"


def locked() -> tuple[Jar, ...]:
    """The jars of jars.lock."""
    text = resources.files("afterbay.platform.broker").joinpath("jars.lock").read_text("utf-8")
    return tuple(Jar(*line.split()) for line in text.splitlines() if line.strip())


def class_path(kafka_home: Path | None) -> tuple[Path, ...]:
    """Jars to run the broker from; `kafka_home` is an unpacked Apache Kafka of one's own."""
    if kafka_home is not None:
        return _own(kafka_home)
    jars = locked()
    files = assemble(jars)
    for jar, file in zip(jars, files, strict=True):
        check(jar, file)
    return files


def assemble(jars: Sequence[Jar]) -> tuple[Path, ...]:
    """Fetch what jgo's cache lacks, in the order of `jars`; not checked yet."""
    # All coordinates at once: with the first alone jgo mixes in an older kafka-clients.
    endpoint = "+".join(jar.coordinate for jar in jars)
    try:
        import jgo  # noqa: PLC0415  # only the embedded broker needs it, and it is slow to load

        found = {path.name: path for path in jgo.build(endpoint).all_jars}
    except ImportError as error:
        raise BadSettings(
            "embedded broker: the package jgo is missing; install 'afterbay[broker]', or set "
            "AFTERBAY_BOOTSTRAP to a Kafka of your own"
        ) from error
    except Exception as error:  # jgo raises whatever its HTTP client does
        raise Unavailable(
            f"embedded broker: its jars cannot be fetched from Maven Central ({error}); check the "
            "network and repeat, or set KAFKA_HOME or AFTERBAY_BOOTSTRAP to a Kafka of your own"
        ) from error
    return tuple(_required(found, jar) for jar in jars)


def check(jar: Jar, file: Path) -> None:
    """BadState if the bytes of `file` are not the locked ones."""
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    if digest != jar.sha256:
        raise BadState(
            f"embedded broker: {file} has SHA-256 {digest}, but {jar.coordinate} is locked to "
            f"{jar.sha256}; it was not run. Delete that file and its copy ({_MAVEN_FOLDERS}), and "
            "repeat; if it happens again, what Maven Central serves is not what was locked"
        )


def _required(found: dict[str, Path], jar: Jar) -> Path:
    file = found.get(jar.file_name)
    if file is None or not file.exists():
        raise BadState(
            f"embedded broker: {jar.file_name} is not in jgo's cache; delete {_MAVEN_FOLDERS}, and "
            "repeat"
        )
    return file


def _own(kafka_home: Path) -> tuple[Path, ...]:
    files = tuple(sorted((kafka_home / "libs").glob("*.jar")))
    if not any(file.name.startswith("kafka_2.13-4.") for file in files):
        raise BadSettings(
            f"KAFKA_HOME is {kafka_home}, but {kafka_home / 'libs'} holds no Apache Kafka 4 "
            "(kafka_2.13-4.*.jar); point it at an unpacked Kafka, or unset it"
        )
    return files
