"""The broker's jars: locked, checked, and refused when they are not what was locked."""

from __future__ import annotations

import hashlib
import string
from pathlib import Path

import pytest

from afterbay.platform.broker import jars
from afterbay.schemas.errors import BadSettings, BadState

ROOT = Path(__file__).parents[3]


def test_every_jar_is_locked_to_a_version_and_a_sha256() -> None:
    locked = jars.locked()
    assert len({jar.coordinate for jar in locked}) == len(locked) > 40
    assert all(jar.coordinate.count(":") == 2 for jar in locked)
    assert all(len(jar.sha256) == 64 and set(jar.sha256) <= set(string.hexdigits) for jar in locked)


def test_all_of_kafka_is_of_one_version() -> None:
    ours = [jar for jar in jars.locked() if jar.coordinate.startswith("org.apache.kafka:")]
    assert {jar.coordinate.rpartition(":")[2] for jar in ours} == {"4.2.2"}


def test_the_lock_in_infra_is_the_one_in_the_package() -> None:
    link = ROOT / "infra" / "kafka" / "jars.lock"
    assert link.samefile(Path(jars.__file__).with_name("jars.lock"))


def test_a_jar_with_other_bytes_is_refused_by_name_and_hash(tmp_path: Path) -> None:
    file = tmp_path / "kafka-clients-4.2.2.jar"
    file.write_bytes(b"as locked")
    jar = jars.Jar("org.apache.kafka:kafka-clients:4.2.2", hashlib.sha256(b"as locked").hexdigest())
    jars.check(jar, file)
    file.write_bytes(b"as locked, and a bit more")
    with pytest.raises(BadState, match=r"kafka-clients-4\.2\.2\.jar has SHA-256 .*was not run"):
        jars.check(jar, file)


def test_a_kafka_home_of_ones_own_is_used_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "libs").mkdir()
    for name in ("kafka_2.13-4.1.0.jar", "kafka-clients-4.1.0.jar"):
        (tmp_path / "libs" / name).touch()
    assert [p.name for p in jars.class_path(tmp_path)] == [
        "kafka-clients-4.1.0.jar",
        "kafka_2.13-4.1.0.jar",
    ]


def test_a_kafka_home_without_kafka_4_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match=r"KAFKA_HOME is .* holds no Apache Kafka 4"):
        jars.class_path(tmp_path)
