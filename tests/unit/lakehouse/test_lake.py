"""Small files beside tables, and whole tables, through the disk and through delta-rs' own store."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from afterbay.lakehouse import tables
from afterbay.lakehouse.lake import Lake
from afterbay.lakehouse.prove import prove
from afterbay.lakehouse.watermarks import OffsetReader
from tests.support.whole_lake import filled


@dataclass(frozen=True, slots=True)
class StoreLake(Lake):
    """A lake reached as object stores are: no local folder, everything through delta-rs."""

    @property
    def folder(self) -> Path | None:
        return None


@pytest.fixture(params=["disk", "store"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    if request.param == "disk":
        return Lake(str(tmp_path))
    return StoreLake(f"file://{tmp_path}")


def test_small_files_are_read_back_listed_and_missed(lake: Lake) -> None:
    tables.ensure(lake)
    lake.write("archive", "_notes/a.txt", b"one")
    lake.write("archive", "_notes/a.txt", b"two")
    assert lake.read("archive", "_notes/a.txt") == b"two"
    assert lake.read("archive", "_notes/b.txt") is None
    assert lake.list("archive", "_notes") == ["a.txt"]
    assert lake.list("archive", "_none") == []


def test_a_whole_lake_is_written_read_and_proved(lake: Lake) -> None:
    filled(lake)
    assert prove(lake).ok
    tables.open(lake, "feedback").create_checkpoint()
    batch = OffsetReader(lake, "feedback", "sink", ["event_id"]).read({})
    assert batch.rows.num_rows == tables.open(lake, "feedback").count()


def test_addresses_are_absolute_on_a_disk_and_left_alone_in_a_store() -> None:
    assert Lake("some/lake").uri("reward") == str(Path("some/lake/reward").absolute())
    assert Lake("file:///some/lake").uri("reward") == "/some/lake/reward"
    assert Lake("s3://bucket/lake/").uri("reward") == "s3://bucket/lake/reward"
    assert Lake("s3://bucket/lake").path("reward") is None
