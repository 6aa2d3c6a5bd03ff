"""Messages with the tool that should answer them: warm start and evaluation read these.

In:   a csv with columns text, category; a json object {tool: [categories]}
Out:  `Labelled` messages in file order, and the tools in theirs
Refuses: missing files or columns, a category no tool lists, two tools that list one (BadSettings)
Never: puts a message into an error
"""

from __future__ import annotations

import csv
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from afterbay.schemas.errors import BadSettings


@dataclass(frozen=True, slots=True)
class Labelled:
    """One message and its right tool."""

    text: str
    tool: str


def read_tools(path: Path) -> dict[str, tuple[str, ...]]:
    """Tools and the categories each is right for, in file order."""
    try:
        tools = msgspec.json.decode(path.read_bytes(), type=dict[str, tuple[str, ...]])
    except (OSError, msgspec.MsgspecError) as error:
        raise BadSettings(
            f"tools file {path.name}: {error}; expected {{tool: [categories]}}"
        ) from error
    if not tools:
        raise BadSettings(f"tools file {path.name}: no tools; expected {{tool: [categories]}}")
    return tools


def read_messages(path: Path, tools: dict[str, tuple[str, ...]]) -> list[Labelled]:
    """All messages of the file, in its order."""
    tool_of = {category: tool for tool, listed in tools.items() for category in listed}
    if len(tool_of) < sum(len(listed) for listed in tools.values()):
        raise BadSettings("tools file: two tools list the same category; list it once")
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            rows = list(csv.DictReader(lines))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadSettings(
            f"messages file {path.name}: {type(error).__name__}; name a UTF-8 csv"
        ) from error
    if not rows or not {"text", "category"} <= rows[0].keys():
        raise BadSettings(
            f"messages file {path.name}: expected a header with text,category and at least one row"
        )
    unknown = sorted({row["category"] for row in rows} - tool_of.keys())
    if unknown:
        raise BadSettings(
            f"messages file {path.name}: {len(unknown)} categories that no tool lists, the first"
            f" is {unknown[0]!r}; add it to a tool"
        )
    return [Labelled(row["text"], tool_of[row["category"]]) for row in rows]


def shuffled(messages: Sequence[Labelled], seed: int) -> list[Labelled]:
    """The messages in the order of `seed`; warm start takes its labels from the head."""
    order = list(messages)
    random.Random(seed).shuffle(order)  # noqa: S311  # repeatable on purpose, not a secret
    return order
