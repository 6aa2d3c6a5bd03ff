"""The two files that must never exist, and what every portion must have."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("platform", "schemas", "streams", "lakehouse", "trainers", "dsa", "dagster_defs")


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_init_file_shadows_the_stdlib_or_ends_the_namespace(folder: str) -> None:
    assert not (ROOT / folder / "__init__.py").exists()
    assert not (ROOT / folder / "afterbay" / "__init__.py").exists()


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_portion_is_a_typed_package(folder: str) -> None:
    package = ROOT / folder / "afterbay" / folder
    assert (package / "__init__.py").read_text() == ""
    assert (package / "py.typed").exists()


def test_the_lock_names_no_index() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    assert "://" not in lock
    assert "--hash=sha256:" in lock
