"""A wheel with one deployable's extra, in an empty environment, imports what that deployable runs.

The import contracts catch an import that is written down; this catches one that is made at run
time, and an extra that lacks a library.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.packaging.deployables import DEPLOYABLES, Deployable

ROOT = Path(__file__).parents[2]
PROBE = """
import importlib, sys
for name in {modules!r}:
    importlib.import_module(name)
bad = sorted(set({forbidden!r}) & set(sys.modules))
print("forbidden:", bad)
sys.exit(bool(bad))
"""


def locked_versions() -> str:
    """`name==version` lines of the lock; pip takes no hashes for a wheel built just now."""
    lock = (ROOT / "requirements.lock").read_text().splitlines()
    pins = (line.split(" ")[0] for line in lock if "==" in line and line[0].isalnum())
    return "\n".join(re.sub(r"\[.*\]", "", pin) for pin in pins)  # a constraint takes no extras


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (built,) = out.glob("*.whl")
    return built


@pytest.mark.parametrize("deployable", DEPLOYABLES, ids=lambda d: d.extra)
def test_the_extra_alone_runs_its_deployable(
    deployable: Deployable, wheel: Path, tmp_path: Path
) -> None:
    place = tmp_path / "env"
    venv.create(place, with_pip=True)
    python = place / "bin" / "python"
    wanted = f"{wheel}[{deployable.extra}]"
    pins = tmp_path / "pins.txt"
    pins.write_text(locked_versions())
    subprocess.run([python, "-m", "pip", "install", "-q", "-c", str(pins), wanted], check=True)
    probe = PROBE.format(modules=deployable.modules, forbidden=deployable.forbidden)
    done = subprocess.run(
        [python, "-P", "-c", probe], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    shutil.rmtree(place)  # up to 5 GB
    assert done.returncode == 0, done.stdout + done.stderr
