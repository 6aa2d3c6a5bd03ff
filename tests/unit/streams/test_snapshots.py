"""A sealed snapshot verifies; one changed byte, file or name does not."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from afterbay.schemas import codec
from afterbay.schemas.events import Metric
from afterbay.streams.signing import Ed25519Signer
from afterbay.streams.snapshots import (
    BadSnapshot,
    Manifest,
    canonical,
    fold_arms,
    folder_of,
    next_event,
    seal_snapshot,
    snapshot_event,
    uri_of,
    verify_snapshot,
)

NOW = datetime(2026, 3, 4, 5, 6, 7, 89, tzinfo=UTC)
ID = "0195600a-0000-7000-8000-000000000001"
SIGNER = Ed25519Signer.generate()
VERIFIER = SIGNER.verifier()
FILES = {
    "policy.safetensors": b"weights" * 9,
    "tokenizer.json": '{"你": 1}'.encode(),
    "config.json": b"{}",
}


def seal(folder: Path, signer: Ed25519Signer = SIGNER) -> Manifest:
    folder.mkdir(exist_ok=True)
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    return seal_snapshot(
        folder,
        snapshot_id=ID,
        policy="bank-agent",
        parent=None,
        tokenizer="t" * 8,
        trained_on={"seed": 7, "window": ["a", "b"], "share": 0.1},
        metrics={"loss_nats": 0.25, "kl_per_token_nats": math.nan, "updates": 3},
        signer=signer,
        now=NOW,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    seal(tmp_path / "s")
    return tmp_path / "s"


def refused(folder: Path, **told: str) -> str:
    with pytest.raises(BadSnapshot) as caught:
        verify_snapshot(folder, VERIFIER, **told)
    return caught.value.kind


def test_a_sealed_folder_verifies_to_the_manifest_that_was_sealed(tmp_path: Path) -> None:
    manifest = seal(tmp_path / "s")
    digest = hashlib.sha256(FILES["policy.safetensors"]).hexdigest()
    assert manifest.digest == digest
    assert manifest.files.keys() == FILES.keys()
    assert verify_snapshot(tmp_path / "s", VERIFIER, digest, ID) == manifest


def test_metrics_that_are_no_number_are_left_out(folder: Path) -> None:
    assert verify_snapshot(folder, VERIFIER).metrics == {"loss_nats": 0.25, "updates": 3.0}


def test_the_manifest_is_canonical_json(folder: Path) -> None:
    text = (folder / "manifest.json").read_text(encoding="utf-8")
    value = json.loads(text)
    assert text == json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert verify_snapshot(folder, VERIFIER).text == text


def test_sealing_again_replaces_manifest_and_signature(folder: Path) -> None:
    other = Ed25519Signer.generate()
    seal(folder, other)
    assert refused(folder) == "signature"
    assert verify_snapshot(folder, other.verifier()).snapshot_id == ID


def every_byte() -> Iterator[tuple[str, int]]:
    with TemporaryDirectory() as place:
        seal(Path(place))
        for path in sorted(Path(place).iterdir()):
            for at in range(path.stat().st_size):
                yield path.name, at


def test_any_flipped_byte_anywhere_refuses(tmp_path: Path) -> None:
    places = list(every_byte())
    assert {name for name, _ in places} == {*FILES, "manifest.json", "manifest.sig"}
    seal(tmp_path)
    for name, at in places:
        whole = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert refused(tmp_path) in {"file", "signature"}, (name, at)
        (tmp_path / name).write_bytes(whole)
    verify_snapshot(tmp_path, VERIFIER)


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from([*FILES, "manifest.json", "manifest.sig"]),
    cut=st.integers(0, 2000),
    put=st.binary(max_size=8),
    take=st.integers(0, 8),
)
def test_any_edit_anywhere_refuses(name: str, cut: int, put: bytes, take: int) -> None:
    with TemporaryDirectory() as place:
        folder = Path(place)
        seal(folder)
        whole = (folder / name).read_bytes()
        at = cut % len(whole)
        edited = whole[:at] + put + whole[at + take :]
        (folder / name).write_bytes(edited)
        if edited == whole:
            verify_snapshot(folder, VERIFIER)
        else:
            refused(folder)


@pytest.mark.parametrize("name", [*FILES, "manifest.json", "manifest.sig"])
def test_a_missing_file_refuses(folder: Path, name: str) -> None:
    (folder / name).unlink()
    assert refused(folder) == "missing"


def test_a_file_that_nobody_signed_refuses(folder: Path) -> None:
    (folder / "extra.json").write_text("{}")
    assert refused(folder) == "unlisted"


def test_a_link_out_of_the_folder_refuses(folder: Path, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere"
    (folder / "config.json").rename(moved)
    (folder / "config.json").symlink_to(moved)
    assert refused(folder) == "unlisted"


def test_another_snapshot_in_its_place_refuses(folder: Path) -> None:
    assert refused(folder, digest="0" * 64) == "digest"
    assert refused(folder, snapshot_id=ID.replace("1", "2")) == "identity"


def test_a_folder_that_is_not_there_refuses(tmp_path: Path) -> None:
    assert refused(tmp_path / "none") == "missing"


@pytest.mark.parametrize(
    "edit",
    [
        lambda text: text.replace(":", ": ", 1),
        lambda text: text.replace("afterbay.snapshot/1", "afterbay.snapshot/2"),
        lambda text: text.replace('"files":{', '"files":{"../x":"00",', 1).replace("{", "{ ", 1),
        lambda text: "[]",
        lambda text: "",
    ],
)
def test_a_signed_text_that_is_no_canonical_manifest_refuses(
    folder: Path, edit: Callable[[str], str]
) -> None:
    forged = edit((folder / "manifest.json").read_text()).encode()
    (folder / "manifest.json").write_bytes(forged)
    (folder / "manifest.sig").write_bytes(SIGNER.sign(forged))
    assert refused(folder) == "manifest"


def test_an_empty_folder_cannot_be_sealed(tmp_path: Path) -> None:
    with pytest.raises(BadSnapshot, match="save the policy"):
        seal_snapshot(
            tmp_path,
            snapshot_id=ID,
            policy="p",
            parent=None,
            tokenizer="t",
            trained_on=None,
            metrics={},
            signer=SIGNER,
            now=NOW,
        )


def test_the_event_carries_what_a_node_needs_to_trust_the_folder(folder: Path) -> None:
    manifest = verify_snapshot(folder, VERIFIER)
    event = snapshot_event(
        folder, manifest, "canary", event_id=ID, uri="snapshots/s", split=0.5, metrics={"ess": 9.0}
    )
    assert codec.decode(codec.encode(event), event.TOPIC) == event
    assert VERIFIER.verify(event.manifest.encode(), base64.b64decode(event.signature))
    assert (event.digest, event.split) == (manifest.digest, 0.5)
    assert event.metrics == (Metric(name="ess", value=9.0),)
    assert event.trained_on is not None
    assert json.loads(event.trained_on)["seed"] == 7


def test_what_happens_next_can_be_told_without_the_files(folder: Path) -> None:
    manifest = verify_snapshot(folder, VERIFIER)
    first = snapshot_event(folder, manifest, "canary", event_id="e1", uri="snapshots/s", split=0.5)
    candidate = fold_arms([first]).candidate
    assert candidate is not None
    then = next_event(candidate, "rolled_back", event_id="e2", metrics={"n": math.nan, "m": 1.0})
    assert (then.action, then.split) == ("rolled_back", None)
    assert then.metrics == (Metric(name="m", value=1.0),)
    same = ("policy", "snapshot_id", "parent", "digest", "uri", "manifest", "signature")
    assert [getattr(then, name) for name in same] == [getattr(first, name) for name in same]


def test_a_uri_inside_the_home_moves_with_the_home(tmp_path: Path) -> None:
    home, moved = tmp_path / "home", tmp_path / "moved"
    inside = home / "snapshots" / "a b%20c"
    assert not uri_of(inside, home).startswith("file:")
    assert folder_of(uri_of(inside, home), moved) == moved / "snapshots" / "a b%20c"


def test_a_uri_outside_the_home_is_absolute(tmp_path: Path) -> None:
    outside = tmp_path / "warm 开始"
    assert folder_of(uri_of(outside, tmp_path / "home"), tmp_path / "x") == outside.resolve()


def test_a_uri_of_another_scheme_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadSnapshot, match="scheme s3"):
        folder_of("s3://bucket/snapshot", tmp_path)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
).filter(lambda value: "Infinity" not in json.dumps(value))


@given(json_values)
def test_canonical_json_is_one_text_that_reads_back(value: object) -> None:
    assert json.loads(canonical(value)) == value
    assert canonical(json.loads(canonical(value))) == canonical(value)
