"""`python -m afterbay.trainers.warmstart`: make the first snapshot's files from labelled messages.

In:   a messages csv and a tools json
Out:  policy.safetensors, tokenizer.json and config.json in --out; one line of JSON figures
Refuses: bad files, with a message and exit status 2
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from afterbay.schemas.errors import AfterbayError
from afterbay.trainers.imitation import ImitationSettings, fit_of, learn
from afterbay.trainers.labelled import read_messages, read_tools, shuffled
from afterbay.trainers.policy import save_policy
from afterbay.trainers.runtime import TorchSettings, set_up_torch


def main(arguments: list[str]) -> int:
    """Run the command; returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        set_up_torch(TorchSettings.from_env(os.environ))
        print(json.dumps(warm_start(options)))
    except AfterbayError as error:
        print(f"warmstart: {error}", file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="afterbay policy warmstart", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--messages", type=Path, required=True, help="csv with text,category")
    parser.add_argument("--tools", type=Path, required=True, help="json {tool: [categories]}")
    parser.add_argument("--out", type=Path, required=True, help="folder for the snapshot's files")
    parser.add_argument("--seed", type=int, required=True, help="shuffle and initial weights")
    parser.add_argument("--labels", type=int, default=200, help="labels to learn from (200)")
    return parser


def warm_start(options: argparse.Namespace) -> dict[str, object]:
    """Learn, write the files, and say how well the labels are fitted."""
    tools = read_tools(options.tools)
    messages = shuffled(read_messages(options.messages, tools), options.seed)
    labels = messages[: options.labels]
    texts = [message.text for message in messages]
    policy = learn(labels, texts, tuple(tools), options.seed, ImitationSettings())
    save_policy(options.out, policy)
    fit = fit_of(policy, labels)
    return {
        "labels": len(labels),
        "tokenizer": policy.tokenizer_fingerprint,
        "fit_loss_nats": fit.loss_nats,
        "fit_accuracy": fit.accuracy,
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
