"""Become another program that cannot outlive the process which started it.

In:   argv: signal number, process id of the parent, then the command
Out:  the command, in this very process, with PR_SET_PDEATHSIG set (it survives exec)
Never: imports anything of afterbay; it is run as a file by a bare `python -I -S`

A `preexec_fn` would do the same, but runs Python between fork and exec, which may hang when the
parent has threads (librdkafka does).
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(argv: list[str]) -> None:
    """Set the death signal, check that the parent is still there, exec."""
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # A shell's background job ignores SIGINT, and programs would inherit that: Dagster then
        # takes it over for SIGTERM and cannot be stopped.
        signal.signal(ignored, signal.SIG_DFL)
    signal_number, parent, command = int(argv[1]), int(argv[2]), argv[3:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal_number, 0, 0, 0)
        if os.getppid() != parent:
            sys.exit(f"{command[0]}: not started, because process {parent} that asked for it ended")
    os.execvp(command[0], command)  # the command is an argument list that we build


if __name__ == "__main__":
    main(sys.argv)
