"""`python -m afterbay.trainers.train`: one training run, as a process of its own.

In:   a home, a slice, the parent's folder, the new snapshot's folder, a run id
Out:  the sealed snapshot, drop events; figures as one line of JSON, and to Dagster if it started it
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
    return report("train", lambda: _run(options, os.environ))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m afterbay.trainers.train", description="One off-policy training run."
    )
    parser.add_argument("--home", type=Path, required=True, help="the installation")
    parser.add_argument("--run-id", required=True, help="drop events leave once under this id")
    parser.add_argument("--slice", type=Path, required=True, help="slice as JSON")
    parser.add_argument("--parent", type=Path, required=True, help="snapshot to go on from")
    parser.add_argument(
        "--out", type=Path, required=True, help="folder to make; its name is the snapshot's id"
    )
    return parser


def _run(options: argparse.Namespace, environ: Mapping[str, str]) -> Mapping[str, Any]:
    # torch takes seconds to import; the leash has to hold before
    from afterbay.schemas.clock import SystemClock  # noqa: PLC0415  # as above
    from afterbay.trainers.home import home_of, read_slice  # noqa: PLC0415
    from afterbay.trainers.learner import LearnerSettings  # noqa: PLC0415
    from afterbay.trainers.runtime import TorchSettings, set_up_torch  # noqa: PLC0415
    from afterbay.trainers.telling import telling  # noqa: PLC0415
    from afterbay.trainers.training_run import Order, train  # noqa: PLC0415

    set_up_torch(TorchSettings.from_env(environ))
    order = Order(
        run_id=options.run_id,
        spec=read_slice(options.slice),
        parent=options.parent,
        out=options.out,
        settings=LearnerSettings(),
    )
    with telling(environ) as told:
        outcome = train(home_of(options.home, environ), order, SystemClock(), told.line)
        told.figures(outcome.figures())
    return outcome.figures()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
