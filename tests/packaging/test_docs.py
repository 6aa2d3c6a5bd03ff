"""The settings page names every variable that the code reads, and no other."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("platform", "schemas", "streams", "lakehouse", "trainers", "dsa", "dagster_defs")
VARIABLE = re.compile(r"\bAFTERBAY_[A-Z]+(?:_[A-Z]+)*\b(?!_)")


def test_the_settings_page_names_every_variable_and_no_other() -> None:
    files = [file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py")]
    read = {name for file in files for name in VARIABLE.findall(file.read_text("utf-8"))}
    told = set(VARIABLE.findall((ROOT / "docs" / "settings.md").read_text("utf-8")))
    assert told == read


def test_every_page_that_is_linked_is_there() -> None:
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        for target in re.findall(r"\]\((?!http)([^)#]+)\)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links {target}"
