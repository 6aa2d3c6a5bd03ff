"""Labelled messages are read as they are, or refused without quoting them."""

from __future__ import annotations

from pathlib import Path

import pytest

from afterbay.schemas.errors import BadSettings
from afterbay.trainers.labelled import Labelled, read_messages, read_tools, shuffled

TOOLS = '{"cards": ["arrival", "stolen"], "fees": ["fee"]}'


def write(folder: Path, messages: str, tools: str = TOOLS) -> tuple[Path, Path]:
    (folder / "m.csv").write_text(messages, encoding="utf-8")
    (folder / "t.json").write_text(tools, encoding="utf-8")
    return folder / "m.csv", folder / "t.json"


def read(folder: Path, messages: str, tools: str = TOOLS) -> list[Labelled]:
    files = write(folder, messages, tools)
    return read_messages(files[0], read_tools(files[1]))


def test_messages_come_with_the_tool_of_their_category(tmp_path: Path) -> None:
    found = read(tmp_path, 'text,category\n"Hi, ""you""\nthere",stolen\n我的卡,fee\n')
    assert found == [Labelled('Hi, "you"\nthere', "cards"), Labelled("我的卡", "fees")]


@pytest.mark.parametrize(
    ("messages", "tools", "says"),
    [
        ("text,category\n", TOOLS, "at least one row"),
        ("words,category\nsecret,fee\n", TOOLS, "text,category"),
        ("text,category\nsecret,refund\n", TOOLS, "'refund'"),
        ("text,category\nsecret,fee\n", '{"a": ["x"], "b": ["x"]}', "two tools"),
        ("text,category\nsecret,fee\n", '["a"]', "expected"),
        ("text,category\nsecret,fee\n", "{}", "no tools"),
    ],
)
def test_bad_files_are_refused_without_a_word_of_theirs(
    tmp_path: Path, messages: str, tools: str, says: str
) -> None:
    with pytest.raises(BadSettings, match=says) as refused:
        read(tmp_path, messages, tools)
    assert "secret" not in str(refused.value)


def test_missing_files_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match=r"t\.json"):
        read_tools(tmp_path / "t.json")
    with pytest.raises(BadSettings, match=r"m\.csv"):
        read_messages(tmp_path / "m.csv", {"a": ("x",)})


def test_a_seed_always_gives_the_same_order() -> None:
    messages = [Labelled(str(n), "a") for n in range(50)]
    assert shuffled(messages, 3) == shuffled(messages, 3)
    assert shuffled(messages, 3) != shuffled(messages, 4)
    assert sorted(shuffled(messages, 3), key=lambda m: int(m.text)) == messages
