"""Key files of a home: made once, readable by their owner alone.

In:   the home's `keys/` folder
Out:  `vault.key` and `vault.pub` (X25519, PEM), `pseudonym.key` (64 hex digits)
Refuses: a secret that group or others may read; a folder whose vault key was taken away while its
      public key stayed is left as it is, because processes that seal need no more
Never: writes over a key, or leaves half of one: a file appears whole or not at all
"""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

from afterbay.schemas.errors import BadState

VAULT_KEY = "vault.key"
VAULT_PUB = "vault.pub"
PSEUDONYM_KEY = "pseudonym.key"
_PRIVATE = 0o600
_PUBLIC = 0o644


def ensure_keys(home_keys: Path) -> None:
    """Make the pseudonym key and the vault's pair in `home_keys` where they are missing."""
    home_keys.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not (home_keys / PSEUDONYM_KEY).exists():
        write_once(home_keys / PSEUDONYM_KEY, secrets.token_hex(32).encode(), _PRIVATE)
    if not (home_keys / VAULT_PUB).exists():
        # here and not above: whoever only needs pseudonyms needs no cryptography
        from afterbay.streams.keys.vault import Vault  # noqa: PLC0415

        Vault.ensure(home_keys)


def write_once(path: Path, content: bytes, mode: int) -> None:
    """Put `content` at `path` unless a file is there; atomic, and on disk when this returns."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(handle, "wb") as out:
            os.fchmod(out.fileno(), mode)  # whatever the umask says
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        try:
            os.link(draft, path)  # unlike rename it never replaces a key made meanwhile
        except FileExistsError:
            return
    finally:
        draft.unlink()
    _sync_folder(path.parent)


def write_private(path: Path, content: bytes) -> None:
    """`write_once` with mode 0600."""
    write_once(path, content, _PRIVATE)


def write_public(path: Path, content: bytes) -> None:
    """`write_once` with mode 0644."""
    write_once(path, content, _PUBLIC)


def read_secret(path: Path) -> bytes:
    """Content of a secret file; BadState if it is missing or readable by group or others."""
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & 0o077:
            raise BadState(
                f"{path}: mode {mode:04o} lets others read a secret, expected 0600; "
                "run chmod 600 on it, and replace the key if somebody may have read it"
            )
        return path.read_bytes().strip()
    except FileNotFoundError:
        raise BadState(f"{path}: no such key; `afterbay up` makes it on first use") from None


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
