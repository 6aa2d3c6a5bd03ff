"""Named crash points: places where a test kills the process to see that nothing is lost.

In:   `AFTERBAY_CRASH_AT=name` or `name:n` (the n-th time it is reached), read by the entry point,
      and `AFTERBAY_CRASH_REPORT`, a file that gets the name once it was hit
Out:  SIGKILL to this very process at that place
Never: does anything unless armed
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path


class CrashPoints:
    """Kills the process the n-th time a named place is reached."""

    def __init__(self) -> None:
        self._name = ""
        self._left = 0
        self._report: Path | None = None

    def arm(self, environ: Mapping[str, str]) -> None:
        """Take the place to die at from the entry point's environment; disarm if there is none."""
        self._name, _, count = environ.get("AFTERBAY_CRASH_AT", "").partition(":")
        self._left = int(count or "1")
        report = environ.get("AFTERBAY_CRASH_REPORT")
        self._report = Path(report) if report else None

    def reach(self, name: str) -> None:
        """Mark that the program is at place `name`; does not return if it is to die here."""
        if name != self._name:
            return
        self._left -= 1
        if self._left == 0:
            self._die()

    def _die(self) -> None:
        if self._report is not None:
            with self._report.open("a", encoding="utf-8") as out:
                out.write(self._name + "\n")
                out.flush()
                os.fsync(out.fileno())
        os.kill(os.getpid(), signal.SIGKILL)


crash_points = CrashPoints()
"""The process's crash points; one process has one death."""
