"""`python -m tests.bench NAME`: run one benchmark. `make bench NAME=…` runs it.

In:   a name; AFTERBAY_HOME (`.afterbay`), below which results and scratch files lie
Out:  a table, `<home>/bench/<name>.json`; without a known name, the list of names
Exit: 0 if it ran, whatever it measured; 2 if there is no such benchmark
"""

from __future__ import annotations

import importlib
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import cast

from rich.console import Console

from tests.bench.harness import Measure, show, write_result

_FOLDER = Path(__file__).parent
_MEASURES = re.compile(r"^def measure\(", re.MULTILINE)


def names() -> list[str]:
    """Modules of this folder that are benchmarks."""
    modules = (path for path in sorted(_FOLDER.glob("*.py")) if not path.stem.startswith("__"))
    return [path.stem for path in modules if _MEASURES.search(path.read_text("utf-8"))]


def main(arguments: list[str]) -> int:
    """Run the benchmark that is named; the exit code."""
    console = Console()
    if len(arguments) != 1 or arguments[0] not in names():
        console.print(f"benchmarks: {', '.join(names())}; `make bench NAME=…` runs one")
        return 2
    name = arguments[0]
    measure = cast("Measure", importlib.import_module(f"tests.bench.{name}").measure)
    results = Path(os.environ.get("AFTERBAY_HOME") or ".afterbay").absolute() / "bench"
    results.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{name}-", dir=results) as scratch:
        figures = measure(Path(scratch))
    write_result(results / f"{name}.json", name, figures)
    show(name, figures, console)
    console.print(f"written to {results / f'{name}.json'}", markup=False)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
