"""`python -m afterbay.trainers.warmstart`: make the first snapshot from a few labelled messages.

In:   a messages csv and a tools json; with --publish a home whose broker is up
Out:  policy.safetensors, tokenizer.json and config.json in --out (a new folder below the home's
      snapshots if none is named); with --publish sealed, published and promoted; one line of JSON
Refuses: with exit status 2 what will fail again, with 75 what may be tried again
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from afterbay.schemas import ids
from afterbay.schemas.clock import SystemClock
from afterbay.trainers.command import report


def main(arguments: list[str]) -> int:
    """Run the program; returns the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.publish and options.home is None:
        parser.error("--publish needs --home")
    if options.publish and options.out is not None:
        parser.error("--publish makes a folder of its own below --home; leave --out away")
    if options.home is None and options.out is None:
        parser.error("name --out, or --home")
    return report("warmstart", lambda: _run(options, os.environ))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="afterbay policy warmstart",
        description="Make the first snapshot from a few labelled messages.",
    )
    parser.add_argument("--messages", type=Path, required=True, help="csv with text,category")
    parser.add_argument("--tools", type=Path, required=True, help="json {tool: [categories]}")
    parser.add_argument("--out", type=Path, help="folder for the snapshot's files")
    parser.add_argument("--seed", type=int, default=1, help="shuffle and initial weights (1)")
    parser.add_argument("--labels", type=int, default=200, help="labels to learn from (200)")
    parser.add_argument("--home", type=Path, help="installation that the snapshot is for")
    parser.add_argument("--publish", action="store_true", help="sign it, publish it, promote it")
    return parser


def _run(options: argparse.Namespace, environ: Mapping[str, str]) -> Mapping[str, Any]:
    # torch takes seconds to import; `--help` does not need it
    from afterbay.trainers.imitation import ImitationSettings, fit_of, learn  # noqa: PLC0415
    from afterbay.trainers.labelled import read_messages, read_tools, shuffled  # noqa: PLC0415
    from afterbay.trainers.policy import save_policy  # noqa: PLC0415
    from afterbay.trainers.runtime import TorchSettings, set_up_torch  # noqa: PLC0415

    set_up_torch(TorchSettings.from_env(environ))
    tools = read_tools(options.tools)
    messages = shuffled(read_messages(options.messages, tools), options.seed)
    labels = messages[: options.labels]
    texts = [message.text for message in messages]
    policy = learn(labels, texts, tuple(tools), options.seed, ImitationSettings())
    folder = options.out or options.home / "snapshots" / ids.new_id(SystemClock().now())
    save_policy(folder, policy)
    fit = {"labels": len(labels), **asdict(fit_of(policy, labels))}
    figures = {"folder": str(folder), "tokenizer": policy.tokenizer_fingerprint, **fit}
    if not options.publish:
        return figures
    return {**figures, **_publish(options.home, folder, policy.tokenizer_fingerprint, fit, environ)}


def _publish(
    root: Path, folder: Path, tokenizer: str, fit: Mapping[str, float], environ: Mapping[str, str]
) -> Mapping[str, Any]:
    from afterbay.trainers.first_snapshot import publish_first, seal_first  # noqa: PLC0415
    from afterbay.trainers.home import home_of  # noqa: PLC0415  # only where it is needed

    home, clock = home_of(root, environ), SystemClock()
    policy = environ.get("AFTERBAY_POLICY") or "bank-agent"
    manifest = seal_first(
        home, folder, policy=policy, tokenizer=tokenizer, metrics=fit, clock=clock
    )
    sent = publish_first(home, folder, manifest, clock)
    return {"snapshot_id": manifest.snapshot_id, "digest": manifest.digest, "events": sent}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
