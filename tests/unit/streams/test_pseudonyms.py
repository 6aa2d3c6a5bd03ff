"""Pseudonyms against RFC 4231 and the key files they come from."""

import hashlib
import hmac
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterbay.schemas.errors import BadSettings, BadState
from afterbay.streams.keys import Pseudonyms, ensure_keys
from afterbay.streams.keys.files import PSEUDONYM_KEY, VAULT_KEY, VAULT_PUB
from afterbay.streams.keys.vault import Vault, VaultPublic

KEY = bytes(range(32))


def test_a_pseudonym_is_the_first_half_of_hmac_sha256_over_kind_and_value() -> None:
    expected = hmac.new(KEY, b"\x07subject" + b"alice", hashlib.sha256).digest()[:16].hex()
    assert Pseudonyms(KEY).of("subject", "alice") == expected


def test_the_mac_underneath_is_that_of_rfc_4231() -> None:
    # test case 1 of RFC 4231: what `of` calls, on the standard's own input
    expected = "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"
    assert hmac.digest(b"\x0b" * 20, b"Hi There", "sha256").hex() == expected


@given(st.tuples(st.text(), st.text()))
def test_values_that_differ_get_names_that_differ(pair: tuple[str, str]) -> None:
    names = Pseudonyms(KEY)
    same = names.of("subject", pair[0]) == names.of("subject", pair[1])
    assert same == (pair[0] == pair[1])


def test_the_same_value_of_two_kinds_gets_two_names() -> None:
    names = Pseudonyms(KEY)
    assert names.of("subject", "a") != names.of("session", "a")
    assert names.of("a", "bc") != names.of("ab", "c")


def test_a_short_key_is_refused_and_no_key_is_shown() -> None:
    with pytest.raises(BadSettings, match="16 bytes"):
        Pseudonyms(bytes(16))
    assert KEY.hex() not in repr(Pseudonyms(KEY))


def test_first_use_makes_private_files_and_the_second_keeps_them(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    ensure_keys(keys)
    before = {file.name: file.read_bytes() for file in keys.iterdir()}
    ensure_keys(keys)
    assert before == {file.name: file.read_bytes() for file in keys.iterdir()}
    assert set(before) == {PSEUDONYM_KEY, VAULT_KEY, VAULT_PUB}
    modes = {name: (keys / name).stat().st_mode & 0o777 for name in before}
    assert modes == {PSEUDONYM_KEY: 0o600, VAULT_KEY: 0o600, VAULT_PUB: 0o644}


def test_secrets_that_others_may_read_are_refused(tmp_path: Path) -> None:
    ensure_keys(tmp_path)
    for name, load in ((PSEUDONYM_KEY, Pseudonyms.load), (VAULT_KEY, Vault.load)):
        (tmp_path / name).chmod(0o640)
        with pytest.raises(BadState, match="chmod 600"):
            load(tmp_path)


def test_a_missing_key_says_where_it_comes_from(tmp_path: Path) -> None:
    for load in (Pseudonyms.load, Vault.load, VaultPublic.load):
        with pytest.raises(BadState, match="afterbay up"):
            load(tmp_path)


def test_a_vault_key_kept_elsewhere_is_not_made_anew(tmp_path: Path) -> None:
    ensure_keys(tmp_path)
    (tmp_path / VAULT_KEY).unlink()
    ensure_keys(tmp_path)
    assert not (tmp_path / VAULT_KEY).exists()


def test_ten_processes_at_once_agree_on_one_pair(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; from afterbay.streams.keys import ensure_keys;"
        "ensure_keys(pathlib.Path(sys.argv[1]))"
    )
    jobs = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], env=os.environ)
        for _ in range(10)
    ]
    assert [job.wait() for job in jobs] == [0] * 10
    sealed = VaultPublic.load(tmp_path).seal(b"k" * 32, b"info")
    assert Vault.load(tmp_path).open(sealed, b"info") == b"k" * 32
    assert len(list(tmp_path.iterdir())) == 3


def test_the_gateways_half_needs_the_standard_library_only() -> None:
    code = "import sys, afterbay.streams.keys; print('cryptography' in sys.modules)"
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert out.strip() == "False"
