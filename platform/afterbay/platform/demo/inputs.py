"""What a run plays, learns from and is measured on.

In:   settings; the demo's own corpus or the files that were named
Out:  `Inputs`: messages, tools, labels, and the files that the platform's commands are given
Never: plays a held-out message or a labelled one; writes a planted value below the home
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from afterbay.platform.demo import corpus
from afterbay.platform.demo.messages import (
    Message,
    read_messages,
    read_tools,
    split,
    write_messages,
)
from afterbay.platform.demo.settings import LABELS, DemoSettings
from afterbay.schemas.errors import BadSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """Messages and tools of one run. Made by `prepare`."""

    source: str
    """Name of the messages file, or `own corpus`."""
    tools: dict[str, list[str]]
    played: list[Message]
    labelled: list[Message]
    """What warm start and judges learn from; not played."""
    warm_file: Path
    """CSV that the warm start reads: its labels are `labelled`."""
    held_out_file: Path
    tools_file: Path


def prepare(settings: DemoSettings, folder: Path) -> Inputs:
    """Read or make the messages, split them, and write the files into `folder`."""
    if settings.messages is None or settings.tools is None:
        source, tools = "own corpus", corpus.tools()
        played, held_out = split(corpus.make(settings.seed))
    else:
        source, tools = settings.messages.name, read_tools(settings.tools)
        played = read_messages(settings.messages, tools)
        played, held_out = _held_out(settings, played, tools)
    # a text file of the warm start is not redacted, so what it names must hold nothing to redact
    warm = [message for message in played if not message.planted]
    labelled = chosen_labels(warm, settings.seed, LABELS)
    known = {message.text for message in labelled}
    played = [message for message in played if message.text not in known]
    if not played or not held_out:
        raise BadSettings(
            f"{source}: {len(played)} messages to play beside {len(labelled)} labels, "
            f"{len(held_out)} held out; give more messages"
        )
    files = [folder / name for name in ("warm.csv", "heldout.csv", "tools.json")]
    write_messages(files[0], warm)
    write_messages(files[1], held_out)
    files[2].write_text(json.dumps(tools, ensure_ascii=False), "utf-8")
    return Inputs(
        source=source,
        tools=tools,
        played=played,
        labelled=labelled,
        warm_file=files[0],
        held_out_file=files[1],
        tools_file=files[2],
    )


def _held_out(
    settings: DemoSettings, messages: list[Message], tools: dict[str, list[str]]
) -> tuple[list[Message], list[Message]]:
    if settings.held_out is None:
        return split(messages)
    held_out = read_messages(settings.held_out, tools)
    texts = {message.text for message in held_out}
    return [message for message in messages if message.text not in texts], held_out


def chosen_labels(messages: Sequence[Message], seed: int, count: int) -> list[Message]:
    """The messages whose labels `afterbay policy warmstart --seed` learns from: the first `count`
    of the file's order, shuffled by the seed."""
    order = list(messages)
    Random(seed).shuffle(order)  # noqa: S311  # the warm start's own order
    return order[:count]
