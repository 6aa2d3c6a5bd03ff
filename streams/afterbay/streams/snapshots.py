"""Snapshots as files that can be trusted: what lies in the folder, who vouches for it.

In:   a folder with a policy's files (`policy.safetensors`, `tokenizer.json`, `config.json`)
Out:  `manifest.json` (canonical JSON) and `manifest.sig` (64 bytes of Ed25519 over exactly the
      bytes of `manifest.json`) beside them, and the `policy.snapshot.v2` event that tells of it
Refuses: as `BadSnapshot`, whose `kind` says what is wrong: any byte of any file that differs from
      what was signed, a missing or an unlisted file, a manifest of another snapshot
Never: loads weights, imports torch, or follows a name out of the folder
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote, unquote, urlsplit

import msgspec

from afterbay.schemas.errors import BadState
from afterbay.schemas.events import Metric, PolicySnapshot
from afterbay.schemas.signer import Signer, Verifier
from afterbay.streams.arms import Action, ArmState, Snapshot, fold_arms
from afterbay.streams.publishing import publish
from afterbay.streams.signing import SIGNATURE_BYTES

__all__ = [  # what this module lends out, the fold of `arms` and the publisher among it
    "ArmState",
    "BadSnapshot",
    "Manifest",
    "canonical",
    "fold_arms",
    "folder_of",
    "next_event",
    "publish",
    "read_manifest",
    "seal_snapshot",
    "snapshot_event",
    "uri_of",
    "verify_snapshot",
]

FORMAT = "afterbay.snapshot/1"
WEIGHTS = "policy.safetensors"
MANIFEST = "manifest.json"
SIGNATURE = "manifest.sig"
_OURS = frozenset({MANIFEST, SIGNATURE})

Kind = Literal["missing", "manifest", "signature", "identity", "digest", "file", "unlisted"]


class BadSnapshot(BadState):
    """A snapshot folder is not what was signed; do not load it, keep serving the old one."""

    def __init__(self, kind: Kind, message: str) -> None:
        super().__init__(message)
        self.kind: Kind = kind
        """Kind of failure; what `policy.loaded.v2` carries as its error."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a snapshot is made of. Made by `seal_snapshot`, read by nodes, gates and auditors."""

    format: str
    """`afterbay.snapshot/1`."""
    snapshot_id: str
    """UUIDv7 of the snapshot."""
    policy: str
    """Name of the policy it is a version of."""
    parent: str | None
    """Snapshot it was trained from; null for a warm start."""
    tokenizer: str
    """Fingerprint of its tokenizer."""
    created_at: str
    """UTC time of sealing, ISO 8601."""
    digest: str
    """SHA-256 (hex) of `policy.safetensors`."""
    files: dict[str, str]
    """SHA-256 (hex) of every file of the folder but manifest and signature, by plain name."""
    trained_on: dict[str, Any] | None
    """The slice it was trained on; null for a warm start."""
    metrics: dict[str, float]
    """Numbers of its training run, by name with unit."""

    @property
    def text(self) -> str:
        """The canonical JSON text; the content of `manifest.json` and what the signature covers."""
        return canonical(msgspec.to_builtins(self))


def canonical(value: Any) -> str:
    """JSON with sorted keys, no space, no escapes beyond need, and no NaN: one text per value."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def seal_snapshot(
    folder: Path,
    *,
    snapshot_id: str,
    policy: str,
    parent: str | None,
    tokenizer: str,
    trained_on: Mapping[str, Any] | None,
    metrics: Mapping[str, float],
    signer: Signer,
    now: datetime,
) -> Manifest:
    """Hash every file of `folder`, sign the list, and put both beside them, on disk on return.

    A folder sealed before is sealed anew, so that a run may be repeated into the same place.
    Metrics that are not finite are left out: JSON has no NaN.
    """
    hashes = {path.name: _sha256(path) for path in _listed(folder)}
    if WEIGHTS not in hashes:
        raise BadSnapshot("missing", f"{folder}: no {WEIGHTS}; save the policy before sealing it")
    manifest = Manifest(
        format=FORMAT,
        snapshot_id=snapshot_id,
        policy=policy,
        parent=parent,
        tokenizer=tokenizer,
        created_at=now.isoformat(timespec="microseconds"),
        digest=hashes[WEIGHTS],
        files=hashes,
        trained_on=None if trained_on is None else dict(trained_on),
        metrics={k: float(v) for k, v in metrics.items() if math.isfinite(v)},
    )
    message = manifest.text.encode()
    # the signature last: without it a half-written folder verifies as nothing
    (folder / SIGNATURE).unlink(missing_ok=True)
    (folder / MANIFEST).write_bytes(message)
    (folder / SIGNATURE).write_bytes(signer.sign(message))
    for path in (*_listed(folder), folder / MANIFEST, folder / SIGNATURE, folder):
        _sync(path)
    return manifest


def verify_snapshot(
    folder: Path,
    verifier: Verifier,
    digest: str | None = None,
    snapshot_id: str | None = None,
) -> Manifest:
    """The manifest of `folder` if every byte in it is as signed, else BadSnapshot.

    `digest` and `snapshot_id` are what the event says; a node passes both, so that one signed
    snapshot cannot stand in for another.
    """
    manifest = read_manifest(folder, verifier)
    if snapshot_id is not None and manifest.snapshot_id != snapshot_id:
        raise BadSnapshot(
            "identity", f"{folder}: its manifest is of another snapshot than {snapshot_id}"
        )
    if digest is not None and manifest.digest != digest:
        raise BadSnapshot("digest", f"{folder}: signed for other weights than the event names")
    present = {path.name for path in _listed(folder)}
    for name, expected in manifest.files.items():
        if name not in present:
            raise BadSnapshot("missing", f"{folder}: {name} is listed but not there; fetch it anew")
        if _sha256(folder / name) != expected:
            raise BadSnapshot("file", f"{folder}: {name} differs from what was signed")
    if unlisted := sorted(present - manifest.files.keys()):
        raise BadSnapshot(
            "unlisted", f"{folder}: {len(unlisted)} file(s) that nobody signed; remove them"
        )
    return manifest


def read_manifest(folder: Path, verifier: Verifier) -> Manifest:
    """The manifest of `folder` if its signature holds; the files it lists are not looked at."""
    try:
        message = (folder / MANIFEST).read_bytes()
        signature = (folder / SIGNATURE).read_bytes()
    except OSError:
        raise BadSnapshot(
            "missing", f"{folder}: no {MANIFEST} with {SIGNATURE}; is the snapshot complete?"
        ) from None
    if len(signature) != SIGNATURE_BYTES or not verifier.verify(message, signature):
        raise BadSnapshot(
            "signature", f"{folder}: not signed by the policy key of this home; do not load it"
        )
    return _parse(message, folder)


def snapshot_event(
    folder: Path,
    manifest: Manifest,
    action: Action,
    *,
    event_id: str,
    uri: str,
    split: float | None = None,
    metrics: Mapping[str, float] | None = None,
) -> PolicySnapshot:
    """The event that `action` happened to the sealed snapshot in `folder`.

    `metrics` are those of its evaluation, the manifest's own if None; `split` goes with `canary`.
    """
    numbers = manifest.metrics if metrics is None else metrics
    return PolicySnapshot(
        event_id=event_id,
        policy=manifest.policy,
        action=action,
        snapshot_id=manifest.snapshot_id,
        parent=manifest.parent,
        digest=manifest.digest,
        uri=uri,
        manifest=manifest.text,
        signature=base64.b64encode((folder / SIGNATURE).read_bytes()).decode(),
        split=split,
        trained_on=None if manifest.trained_on is None else canonical(manifest.trained_on),
        metrics=_finite(numbers),
    )


def next_event(
    snapshot: Snapshot,
    action: Action,
    *,
    event_id: str,
    split: float | None = None,
    metrics: Mapping[str, float] | None = None,
) -> PolicySnapshot:
    """The event that `action` happened to a snapshot that events told of before.

    Needs no files, so a snapshot whose folder was damaged or lost can still be rolled back.
    """
    return PolicySnapshot(
        event_id=event_id,
        policy=snapshot.policy,
        action=action,
        snapshot_id=snapshot.snapshot_id,
        parent=snapshot.parent,
        digest=snapshot.digest,
        uri=snapshot.uri,
        manifest=snapshot.manifest,
        signature=snapshot.signature,
        split=split,
        metrics=_finite(metrics or {}),
    )


def uri_of(folder: Path, home: Path) -> str:
    """How events name `folder`: relative to the home if inside (a home may move), else file://."""
    folder, home = folder.resolve(), home.resolve()
    if folder.is_relative_to(home):
        return quote(folder.relative_to(home).as_posix())
    return folder.as_uri()


def folder_of(uri: str, home: Path) -> Path:
    """The folder that an event's `uri` names, seen from `home`; BadSnapshot for other schemes."""
    parts = urlsplit(uri)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    if parts.scheme:
        raise BadSnapshot(
            "missing", f"snapshot uri of scheme {parts.scheme}: only local folders are read here"
        )
    return home / unquote(parts.path)


def _finite(numbers: Mapping[str, float]) -> tuple[Metric, ...]:
    return tuple(Metric(name=k, value=v) for k, v in numbers.items() if math.isfinite(v))


def _parse(message: bytes, folder: Path) -> Manifest:
    try:
        manifest = msgspec.json.decode(message, type=Manifest)
        same = manifest.text.encode() == message
    except (msgspec.DecodeError, ValueError):
        same = False
    if not same or manifest.format != FORMAT:
        raise BadSnapshot("manifest", f"{folder}: {MANIFEST} is no canonical {FORMAT}")
    if manifest.files.get(WEIGHTS) != manifest.digest:
        raise BadSnapshot("manifest", f"{folder}: {MANIFEST} names two digests for {WEIGHTS}")
    return manifest


def _listed(folder: Path) -> list[Path]:
    """Everything in `folder` but manifest and signature, by name; only plain files may be there."""
    try:
        found = sorted(path for path in folder.iterdir() if path.name not in _OURS)
    except OSError:
        raise BadSnapshot("missing", f"{folder}: no such snapshot folder") from None
    for path in found:
        if path.is_symlink() or not path.is_file():
            raise BadSnapshot("unlisted", f"{folder}: {path.name} is no plain file; remove it")
    return found


def _sha256(path: Path) -> str:
    with path.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
