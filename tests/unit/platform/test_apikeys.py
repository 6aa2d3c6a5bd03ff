"""API keys: shown once, found by their text, kept as a hash."""

from __future__ import annotations

import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest

from afterbay.platform import apikeys
from afterbay.schemas.errors import BadSettings, BadState

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def test_a_key_names_its_caller_and_another_text_names_nobody(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "api_keys.json"
    first = apikeys.create(path, "demo", NOW)
    second = apikeys.create(path, "tests", NOW)
    keys = apikeys.ApiKeys(path)
    assert keys.caller_of(first.text) == first.id
    assert keys.caller_of(second.text) == second.id
    assert keys.caller_of(first.text + "x") is None


def test_a_key_made_later_is_seen_without_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "api_keys.json"
    keys = apikeys.ApiKeys(path)
    assert keys.caller_of("ab-nothing") is None
    new = apikeys.create(path, "late", NOW)
    assert keys.caller_of(new.text) == new.id


def test_the_file_holds_no_key_text_and_is_private(tmp_path: Path) -> None:
    path = tmp_path / "api_keys.json"
    new = apikeys.create(path, "demo", NOW)
    assert new.text.removeprefix("ab-") not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_that_is_no_key_file_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "api_keys.json"
    path.write_text('{"keys": [3]}')
    with pytest.raises(BadState, match=r"api_keys\.json: not a file of API keys"):
        apikeys.read_keys(path)


def test_a_key_has_the_scopes_it_was_made_with_and_a_plain_one_none(tmp_path: Path) -> None:
    path = tmp_path / "api_keys.json"
    plain = apikeys.create(path, "client", NOW)
    operator = apikeys.create(path, "operator", NOW, [apikeys.DECRYPT, apikeys.DECRYPT])
    keys = apikeys.ApiKeys(path)
    found = {text: keys.find(text) for text in (plain.text, operator.text)}
    assert [key and key.scopes for key in found.values()] == [(), (apikeys.DECRYPT,)]
    with pytest.raises(BadSettings, match="expected one of: pii:decrypt"):
        apikeys.create(path, "wrong", NOW, ["everything"])


def test_keys_made_before_there_were_scopes_have_none(tmp_path: Path) -> None:
    path = tmp_path / "api_keys.json"
    path.write_text('{"keys": [{"id": "key_1", "name": "n", "sha256": "0", "created_at": "2026"}]}')
    (key,) = apikeys.read_keys(path)
    assert key.scopes == ()
