"""Named fault points: where a test kills, fails or freezes the process to see nothing is lost.

In:   `AFTERBAY_CRASH_AT=name` or `name:n` (the n-th time it is reached), read by the entry point,
      `AFTERBAY_FAIL_AT` and `AFTERBAY_FREEZE_AT`, the same for raising and for standing still, and
      `AFTERBAY_CRASH_REPORT`, a file that gets the name once it was hit
Out:  SIGKILL to this very process at that place, InjectedFault, or SIGSTOP
Never: does anything unless armed
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path


class InjectedFault(Exception):
    """Raised where a test asked for it; nobody catches it by name, as with any surprise."""


class _Countdown:
    """The n-th visit of one place."""

    def __init__(self, armed: str) -> None:
        self._name, _, count = armed.partition(":")
        self._left = int(count or "1")

    def over(self, name: str) -> bool:
        """True at the visit that was asked for, and only then."""
        if name != self._name:
            return False
        self._left -= 1
        return self._left == 0


class CrashPoints:
    """Kills or freezes the process, or raises, the n-th time a named place is reached."""

    def __init__(self) -> None:
        self.arm({})

    def arm(self, environ: Mapping[str, str]) -> None:
        """Take the places to die or fail at from the entry point's environment; else disarm."""
        self._crash = _Countdown(environ.get("AFTERBAY_CRASH_AT", ""))
        self._fail = _Countdown(environ.get("AFTERBAY_FAIL_AT", ""))
        self._freeze = _Countdown(environ.get("AFTERBAY_FREEZE_AT", ""))
        report = environ.get("AFTERBAY_CRASH_REPORT")
        self._report = Path(report) if report else None

    def reach(self, name: str) -> None:
        """Mark that the program is at place `name`; does not return if it is to die here."""
        if self._crash.over(name):
            self._note(name)
            os.kill(os.getpid(), signal.SIGKILL)
        if self._freeze.over(name):
            self._note(name)
            os.kill(os.getpid(), signal.SIGSTOP)  # until somebody sends SIGCONT
        if self._fail.over(name):
            self._note(name)
            raise InjectedFault(f"a test asked for a failure at {name}")

    def _note(self, name: str) -> None:
        if self._report is None:
            return
        with self._report.open("a", encoding="utf-8") as out:
            out.write(name + "\n")
            out.flush()
            os.fsync(out.fileno())


crash_points = CrashPoints()
"""The process's crash points; one process has one death."""
