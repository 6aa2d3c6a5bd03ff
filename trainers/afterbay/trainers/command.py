"""What every program of this folder does around its work: leash, errors, exit status.

In:   a function that gives figures, the arguments
Out:  the figures as one line of JSON on stdout, or one line on stderr that says what to do
Refuses: to outlive the process that started it, where it is asked to be leashed
Never: imports torch; programs call `leash` first and import what is heavy after it
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping

from afterbay.schemas.errors import AfterbayError, OutcomeUnknown, Retryable

PR_SET_PDEATHSIG = 1
REFUSED = 2
"""Exit status: the same call will fail again."""
TRY_AGAIN = 75
"""Exit status (EX_TEMPFAIL): the same call may be made again."""


def leash() -> None:
    """End with the process that started this one: an orphan of Dagster would train for nobody."""
    parent = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit("the process that started this one has ended; nothing was done")


def report(program: str, work: Callable[[], Mapping[str, object]]) -> int:
    """Do the work, print its figures; gives the exit status."""
    try:
        print(json.dumps(work(), allow_nan=False))
    except (Retryable, OutcomeUnknown) as error:
        print(f"{program}: {error}", file=sys.stderr)
        return TRY_AGAIN
    except AfterbayError as error:
        print(f"{program}: {error}", file=sys.stderr)
        return REFUSED
    return 0
