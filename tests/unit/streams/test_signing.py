"""Ed25519 signatures, against the vectors of RFC 8032 section 7.1."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from afterbay.schemas.errors import BadState
from afterbay.streams.signing import (
    POLICY_KEY,
    POLICY_PUB,
    Ed25519Signer,
    Ed25519Verifier,
    ensure_policy_keys,
)

RFC_8032 = (  # secret key, message, signature
    (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155"
        "5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
    ),
    (
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
    ),
)


@pytest.mark.parametrize(("secret", "message", "signature"), RFC_8032)
def test_signatures_are_those_of_rfc_8032(secret: str, message: str, signature: str) -> None:
    signer = Ed25519Signer(Ed25519PrivateKey.from_private_bytes(bytes.fromhex(secret)))
    assert signer.sign(bytes.fromhex(message)).hex() == signature
    assert signer.verifier().verify(bytes.fromhex(message), bytes.fromhex(signature))


def test_another_message_or_a_cut_signature_does_not_verify() -> None:
    signer = Ed25519Signer.generate()
    signature = signer.sign(b"one")
    assert not signer.verifier().verify(b"two", signature)
    assert not signer.verifier().verify(b"one", signature[:-1])
    assert not Ed25519Signer.generate().verifier().verify(b"one", signature)


def test_keys_are_made_once_and_kept(tmp_path: Path) -> None:
    ensure_policy_keys(tmp_path / "keys")
    first = (tmp_path / "keys" / POLICY_KEY).read_bytes()
    ensure_policy_keys(tmp_path / "keys")
    assert (tmp_path / "keys" / POLICY_KEY).read_bytes() == first
    signature = Ed25519Signer.load(tmp_path / "keys").sign(b"x")
    assert Ed25519Verifier.load(tmp_path / "keys").verify(b"x", signature)


def test_the_private_key_file_is_the_owners_alone(tmp_path: Path) -> None:
    ensure_policy_keys(tmp_path)
    assert (tmp_path / POLICY_KEY).stat().st_mode & 0o777 == 0o600
    (tmp_path / POLICY_KEY).chmod(0o640)
    with pytest.raises(BadState, match="chmod 600"):
        Ed25519Signer.load(tmp_path)


def test_no_pair_replaces_one_whose_private_half_lives_elsewhere(tmp_path: Path) -> None:
    ensure_policy_keys(tmp_path)
    (tmp_path / POLICY_KEY).unlink()
    ensure_policy_keys(tmp_path)
    assert not (tmp_path / POLICY_KEY).exists()


@pytest.mark.parametrize("content", [b"", b"no key", b"-----BEGIN PUBLIC KEY-----"])
def test_a_file_that_is_no_key_is_refused(tmp_path: Path, content: bytes) -> None:
    ensure_policy_keys(tmp_path)
    for name in (POLICY_KEY, POLICY_PUB):
        (tmp_path / name).write_bytes(content)
    with pytest.raises(BadState, match="restore it"):
        Ed25519Signer.load(tmp_path)
    with pytest.raises(BadState, match="restore it"):
        Ed25519Verifier.load(tmp_path)


def test_a_missing_key_says_who_makes_it(tmp_path: Path) -> None:
    with pytest.raises(BadState, match="afterbay up"):
        Ed25519Signer.load(tmp_path)
    with pytest.raises(BadState, match="afterbay up"):
        Ed25519Verifier.load(tmp_path)


def test_a_signer_shows_no_key() -> None:
    assert repr(Ed25519Signer.generate()) == "Ed25519Signer(…)"
