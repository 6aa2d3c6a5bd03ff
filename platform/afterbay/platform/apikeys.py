"""API keys of an installation: who may call the gateway, and who may do more than that.

In:   `keys/api_keys.json` = {"keys": [{"id", "name", "sha256", "created_at", "scopes"}]}
Out:  `create` (the one time a key's text is seen), `ApiKeys.caller_of(text)` (its id, or None)
Refuses: a key file that is not such JSON (BadState), a scope that is none (BadSettings)
Never: stores a key's text; a key is 256 random bits, so a plain SHA-256 of it cannot be guessed
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import msgspec

from afterbay.schemas.errors import BadSettings, BadState

_PREFIX = "ab-"
DECRYPT = "pii:decrypt"
"""Scope to open what is sealed: personal data and dead letters."""
SCOPES = (DECRYPT,)
"""Every scope there is. Any key may call the gateway."""


class ApiKey(msgspec.Struct, frozen=True, kw_only=True):
    """One key as it is stored. Made by `create`, read by the gateway."""

    id: str
    """Logged as the caller of requests and feedback; no secret."""
    name: str
    """What a person called it."""
    sha256: str
    """Of the key's text, lower-case hex."""
    created_at: str
    """ISO 8601, UTC."""
    scopes: tuple[str, ...] = ()
    """What it may do beyond calling the gateway."""


class _File(msgspec.Struct, frozen=True):
    keys: list[ApiKey] = []  # msgspec copies an empty default


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key just made; `text` is shown once and stored nowhere."""

    id: str
    text: str


class ApiKeys:
    """The keys in a file, read again whenever the file changes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._known: dict[str, ApiKey] = {}

    def caller_of(self, text: str) -> str | None:
        """Id of the key `text`; None if there is no such key."""
        key = self.find(text)
        return None if key is None else key.id

    def find(self, text: str) -> ApiKey | None:
        """The key whose text is `text`; None if there is none."""
        self._refresh()
        return self._known.get(_digest(text))

    def _refresh(self) -> None:
        seen = _stamp(self._path)
        if seen != self._seen:
            self._known = {key.sha256: key for key in read_keys(self._path)}
            self._seen = seen


def read_keys(path: Path) -> tuple[ApiKey, ...]:
    """All keys of `path`; none if there is no such file."""
    try:
        return tuple(msgspec.json.decode(path.read_bytes(), type=_File).keys)
    except FileNotFoundError:
        return ()
    except msgspec.DecodeError as error:
        raise BadState(f"{path}: not a file of API keys; delete it and make new ones") from error


def create(path: Path, name: str, now: datetime, scopes: Sequence[str] = ()) -> NewKey:
    """Add a key to `path` and return its text; safe beside another process that does the same."""
    unknown = sorted(set(scopes) - set(SCOPES))
    if unknown:
        raise BadSettings(f"no scope {unknown[0]}; expected one of: {', '.join(SCOPES)}")
    key_id = f"key_{secrets.token_hex(6)}"
    new = NewKey(key_id, _PREFIX + secrets.token_urlsafe(32))
    entry = ApiKey(
        id=key_id,
        name=name,
        sha256=_digest(new.text),
        created_at=now.isoformat(timespec="seconds"),
        scopes=tuple(dict.fromkeys(scopes)),
    )
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _locked(path.with_suffix(".lock")):
        _replace(path, [*read_keys(path), entry])
    return new


def _replace(path: Path, keys: list[ApiKey]) -> None:
    draft = path.with_suffix(".new")
    text = json.dumps({"keys": [msgspec.to_builtins(key) for key in keys]}, indent=1)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
        out.write(text + "\n")
        out.flush()
        os.fsync(out.fileno())
    draft.replace(path)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
