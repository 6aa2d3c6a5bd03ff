"""Files become messages; the held-out fifth is the same in every run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from afterbay.platform.demo import corpus
from afterbay.platform.demo.inputs import prepare
from afterbay.platform.demo.messages import (
    Message,
    read_messages,
    read_tools,
    split,
    write_messages,
)
from afterbay.platform.demo.settings import DemoSettings
from afterbay.schemas.errors import BadSettings
from afterbay.trainers.labelled import read_messages as read_labelled
from afterbay.trainers.labelled import read_tools as read_trainer_tools
from afterbay.trainers.labelled import shuffled

TOOLS = {"cards": ["lost", "late"], "money": ["rate"]}


def _file(folder: Path, text: str) -> Path:
    path = folder / "messages.csv"
    path.write_text(text, "utf-8")
    return path


def test_messages_are_read_with_the_tool_of_their_category(tmp_path: Path) -> None:
    path = _file(tmp_path, 'text,category\n"lost, sadly",lost\nhow much,rate\n')
    assert read_messages(path, TOOLS) == [
        Message(text="lost, sadly", category="lost", tool="cards"),
        Message(text="how much", category="rate", tool="money"),
    ]


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    messages = [Message(text='a "quoted",\nbroken line', category="lost", tool="cards")]
    write_messages(tmp_path / "m.csv", messages)
    assert read_messages(tmp_path / "m.csv", TOOLS) == messages


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("words,category\na,lost\n", "no columns text,category"),
        ("text,category\nsecret words,unheard\n", "line 2: no tool lists its category"),
        ("text,category\n  ,lost\n", "line 2: empty text"),
        ("text,category\n", "no messages"),
    ],
)
def test_a_bad_file_is_refused_by_line_and_not_by_its_words(
    tmp_path: Path, text: str, told: str
) -> None:
    with pytest.raises(BadSettings, match=told) as caught:
        read_messages(_file(tmp_path, text), TOOLS)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("content", ["[]", "{}", '{"a b": ["x"]}', '{"a": "x"}', "nonsense"])
def test_a_tools_file_of_another_form_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "tools.json"
    path.write_text(content)
    with pytest.raises(BadSettings, match="tool"):
        read_tools(path)


def test_a_fifth_is_held_out_whatever_the_order_of_the_file() -> None:
    messages = corpus.make(3, 3_000)
    played, held_out = split(messages)
    again = split(list(reversed(messages)))
    assert {m.text for m in held_out} == {m.text for m in again[1]}
    assert 0.17 < len(held_out) / len(messages) < 0.23
    assert len(played) + len(held_out) == len(messages)


def test_neither_labels_nor_held_out_messages_are_played(tmp_path: Path) -> None:
    inputs = prepare(DemoSettings(home=tmp_path, env={}), tmp_path)
    played = {m.text for m in inputs.played}
    held_out = {m.text for m in read_messages(inputs.held_out_file, inputs.tools)}
    assert len(inputs.labelled) == 200
    assert not played & {m.text for m in inputs.labelled}
    assert not played & held_out


def test_the_judges_learn_from_the_very_labels_that_the_warm_start_learns_from(
    tmp_path: Path,
) -> None:
    inputs = prepare(DemoSettings(home=tmp_path, seed=5, env={}), tmp_path)
    tools = read_trainer_tools(inputs.tools_file)
    theirs = shuffled(read_labelled(inputs.warm_file, tools), 5)[:200]
    assert [(m.text, m.tool) for m in inputs.labelled] == [(m.text, m.tool) for m in theirs]


def test_no_planted_value_is_in_the_files_that_commands_are_given(tmp_path: Path) -> None:
    inputs = prepare(DemoSettings(home=tmp_path, env={}), tmp_path)
    text = inputs.warm_file.read_text("utf-8")
    assert not any(v.written in text for m in inputs.played for v in m.planted)


def test_a_held_out_file_is_measured_on_and_never_played(tmp_path: Path) -> None:
    messages = [Message(f"lost card number {i}", "lost", "cards") for i in range(400)]
    write_messages(tmp_path / "train.csv", messages)
    write_messages(tmp_path / "test.csv", messages[:50])
    (tmp_path / "tools.json").write_text(json.dumps(TOOLS))
    env = {"MESSAGES": "train.csv", "TOOLS": "tools.json", "HELDOUT": "test.csv"}
    settings = DemoSettings.from_env({k: str(tmp_path / v) for k, v in env.items()})
    inputs = prepare(settings, tmp_path)
    assert len(inputs.played) == 400 - 50 - 200
    assert not {m.text for m in inputs.played} & {m.text for m in messages[:50]}
