"""`python -m afterbay.trainers.evaluate`: how good a snapshot is on labelled messages.

In:   a snapshot folder, a messages csv, a tools json
Out:  one line of JSON: {messages, greedy_accuracy, sampled_reward}
Refuses: bad files, with exit status 2
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from afterbay.trainers.command import report


def main(arguments: list[str]) -> int:
    """Run the program; returns the exit status."""
    options = _parser().parse_args(arguments)
    return report("evaluate", lambda: _run(options, os.environ))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="afterbay policy evaluate", description="How good a snapshot is where labels exist."
    )
    parser.add_argument("--snapshot", type=Path, required=True, help="snapshot folder")
    parser.add_argument("--messages", type=Path, required=True, help="csv with text,category")
    parser.add_argument("--tools", type=Path, required=True, help="json {tool: [categories]}")
    parser.add_argument("--json", action="store_true", help="the only form there is")
    return parser


def _run(options: argparse.Namespace, environ: Mapping[str, str]) -> Mapping[str, Any]:
    # torch takes seconds to import; `--help` does not need it
    from afterbay.trainers.evaluation import score  # noqa: PLC0415  # as above
    from afterbay.trainers.labelled import read_messages, read_tools  # noqa: PLC0415
    from afterbay.trainers.policy import load_policy  # noqa: PLC0415
    from afterbay.trainers.runtime import TorchSettings, set_up_torch  # noqa: PLC0415

    set_up_torch(TorchSettings.from_env(environ))
    messages = read_messages(options.messages, read_tools(options.tools))
    return asdict(score(load_policy(options.snapshot), messages))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
