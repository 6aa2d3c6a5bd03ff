"""The command `afterbay`: what people and scripts use of an installation.

In:   arguments, the environment
Out:  text for people; JSON for programs with `--json`; exit code 0, 1 (an error that says what to
      do) or 2 (wrong arguments)
Never: holds logic of its own beyond presenting; each command is a thin caller, imported when used,
       so that `afterbay --help` is fast
"""

from __future__ import annotations

import os
import sys

from afterbay.schemas.errors import AfterbayError
from afterbay.schemas.faults import crash_points


def main() -> None:
    """Run one command; an AfterbayError is shown as its text, everything else as a traceback."""
    from afterbay.platform.cli.app import app

    crash_points.arm(os.environ)
    try:
        app()
    except AfterbayError as error:
        sys.stderr.write(f"afterbay: {error}\n")
        sys.exit(1)
