"""What a process and its descendants use: peak memory together, CPU time together.

In:   process ids
Out:  `Usage`
Never: counts a page less than once: pages that two of them share count twice
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_EVERY_S = 0.05
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(slots=True)
class Usage:
    """Of one tree of processes. Made by `watched`, read once it has ended."""

    peak_bytes: int = 0
    """Largest sum of resident memory over all of them at once."""
    cpu_s: float = 0.0
    """User and system time of all of them."""


@contextmanager
def watched(pids: Iterable[int]) -> Iterator[Usage]:
    """Look at `pids` and their descendants until the block ends."""
    usage, over, roots = Usage(), threading.Event(), tuple(pids)
    cpu: dict[int, float] = {}

    def look() -> None:
        while not over.wait(_EVERY_S):
            _look(roots, cpu, usage)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield usage
    finally:
        _look(roots, cpu, usage)  # while they still live
        over.set()
        thread.join()


def _look(roots: tuple[int, ...], cpu: dict[int, float], usage: Usage) -> None:
    resident = 0
    for pid in _tree(roots):
        try:
            # the name in parentheses may hold spaces: fields are counted after it
            fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        cpu[pid] = (int(fields[11]) + int(fields[12])) / _TICKS
        resident += int(fields[21]) * _PAGE
    usage.peak_bytes = max(usage.peak_bytes, resident)
    usage.cpu_s = sum(cpu.values())


def _tree(roots: Iterable[int]) -> Iterator[int]:
    """Every process of the trees that begin at `roots`."""
    for pid in roots:
        yield pid
        try:
            tasks = list(Path(f"/proc/{pid}/task").iterdir())
            children = [(task / "children").read_text("utf-8").split() for task in tasks]
        except (FileNotFoundError, ProcessLookupError):
            continue
        yield from _tree(int(child) for found in children for child in found)
