"""Customer messages: from files, split into played and held out.

In:   a CSV with columns text,category; a JSON of {tool: [categories]}
Out:  `Message`s with the tool that is right for them; a split that is stable over runs
Refuses: missing columns, empty texts, categories without a tool, odd tool names, with
      BadSettings that names file and line, never the text
"""

from __future__ import annotations

import csv
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from afterbay.platform.demo.personal import Planted
from afterbay.schemas.errors import BadSettings

HELD_OUT_EVERY = 5
"""One message in so many is held out where no held-out file is given."""
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class Message:
    """What one customer writes. Made by the corpus or read from a file, played once or more."""

    text: str
    category: str
    """What the customer wants."""
    tool: str
    """The tool an agent should call."""
    planted: tuple[Planted, ...] = ()
    """Made-up personal values in the text; the leak scan looks for them."""


def read_tools(path: Path) -> dict[str, list[str]]:
    """{tool: [categories]} of a JSON file."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise BadSettings(
            f"TOOLS={path}: {type(error).__name__}; expected a JSON file {{tool: [categories]}}"
        ) from None
    if not (isinstance(found, dict) and found and all(map(_is_tool, found.items()))):
        raise BadSettings(
            f"TOOLS={path}: expected {{tool: [categories]}} with tool names of 1 to 64 letters,"
            " digits, _ or -"
        )
    return found


def _is_tool(item: tuple[str, object]) -> bool:
    name, categories = item
    listed = isinstance(categories, list) and all(isinstance(c, str) for c in categories)
    return listed and _TOOL_NAME.fullmatch(name) is not None


def read_messages(path: Path, tools: Mapping[str, Sequence[str]]) -> list[Message]:
    """Messages of a CSV file, in its order, each text once."""
    owner = {category: tool for tool, categories in tools.items() for category in categories}
    found: dict[str, Message] = {}
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            rows = csv.DictReader(lines)
            if not {"text", "category"} <= set(rows.fieldnames or ()):
                raise BadSettings(f"{path}: no columns text,category in the first line")
            for row in rows:
                message = _message(row, owner, f"{path} line {rows.line_num}")
                found.setdefault(message.text, message)
    except (OSError, UnicodeDecodeError) as error:
        raise BadSettings(f"{path}: {type(error).__name__}; expected a UTF-8 CSV file") from None
    if not found:
        raise BadSettings(f"{path}: no messages; expected lines of text,category")
    return list(found.values())


def _message(row: Mapping[str, str | None], owner: Mapping[str, str], where: str) -> Message:
    text, category = (row.get("text") or "").strip(), (row.get("category") or "").strip()
    if not text:
        raise BadSettings(f"{where}: empty text")
    if category not in owner:
        raise BadSettings(f"{where}: no tool lists its category; add it to the tools file")
    return Message(text=text, category=category, tool=owner[category])


def write_messages(path: Path, messages: Iterable[Message]) -> None:
    """The CSV form that `read_messages` reads."""
    with path.open("w", encoding="utf-8", newline="") as lines:
        rows = csv.writer(lines)
        rows.writerow(("text", "category"))
        rows.writerows((m.text, m.category) for m in messages)


def is_held_out(text: str) -> bool:
    """True for a fifth of all texts, the same ones in every run, whatever the file's order."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) % HELD_OUT_EVERY == 0


def split(messages: Iterable[Message]) -> tuple[list[Message], list[Message]]:
    """(played, held out), by the hash of each text."""
    played: list[Message] = []
    held: list[Message] = []
    for message in messages:
        (held if is_held_out(message.text) else played).append(message)
    return played, held
