"""`python -m afterbay.trainers.offpolicy`: a candidate beside the current policy, off-policy.

In:   a home, a slice, two snapshot folders
Out:  one line of JSON: {rows, logged_reward, candidate: {snips, half_width, ess, n}, current: …}
Refuses: with exit status 2 what will fail again, with 75 what may be tried again
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from afterbay.trainers.command import leash, report


def main(arguments: list[str]) -> int:
    """Run the program; returns the exit status."""
    options = _parser().parse_args(arguments)
    leash()
    return report("offpolicy", lambda: _run(options, os.environ))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m afterbay.trainers.offpolicy",
        description="What a candidate would have earned on held-out sessions.",
    )
    parser.add_argument("--home", type=Path, required=True, help="the installation")
    parser.add_argument("--slice", type=Path, required=True, help="slice as JSON")
    parser.add_argument("--candidate", type=Path, required=True, help="snapshot folder")
    parser.add_argument("--current", type=Path, required=True, help="snapshot folder")
    parser.add_argument("--json", action="store_true", help="the only form there is")
    return parser


def _run(options: argparse.Namespace, environ: Mapping[str, str]) -> Mapping[str, Any]:
    # torch takes seconds to import; the leash has to hold before
    from afterbay.trainers.comparison import compare  # noqa: PLC0415  # as above
    from afterbay.trainers.home import home_of, read_slice  # noqa: PLC0415
    from afterbay.trainers.runtime import TorchSettings, set_up_torch  # noqa: PLC0415

    set_up_torch(TorchSettings.from_env(environ))
    spec = read_slice(options.slice)
    home = home_of(options.home, environ)
    return compare(home, spec, options.candidate, options.current).figures()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
