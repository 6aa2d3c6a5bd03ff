"""The key store: sealed key records in SQLite, on disk before the events that need them leave.

In:   hour keys (sealed to the vault) and data keys (wrapped under their hour key)
Out:  the record of a key id, or None
Refuses: as Unavailable: a file that is locked, full or away (whoever seals waits and tries again);
      as BadState: a file that is no key store
Never: holds a key that its reader could use without the vault's private key
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from afterbay.schemas.errors import BadState, Unavailable

_BUSY_S = 5.0
_SCHEMA = """
CREATE TABLE IF NOT EXISTS hour_key (
    hour_key_id TEXT PRIMARY KEY, process TEXT NOT NULL, hour INTEGER NOT NULL, sealed BLOB NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS data_key (
    key_id TEXT PRIMARY KEY, subject TEXT NOT NULL, hour_key_id TEXT NOT NULL, wrapped BLOB NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS data_key_subject ON data_key (subject);
"""


@dataclass(frozen=True, slots=True)
class HourKey:
    """Key-encryption key of one process and hour, sealed. Made by the sealer."""

    hour_key_id: str
    """UUIDv7."""
    process: str
    """Process that sealed with it."""
    hour: int
    """Whole hours since the Unix epoch (UTC)."""
    sealed: bytes
    """HPKE to the vault: encapsulated key, ciphertext, tag."""


@dataclass(frozen=True, slots=True)
class DataKey:
    """Key of one subject, process and hour, wrapped. Made by the sealer; erasure destroys it."""

    key_id: str
    """UUIDv7; what findings name."""
    subject: str
    """Pseudonym of the person, `inference:<id>` or `quarantine`."""
    hour_key_id: str
    """The hour key that `wrapped` opens with."""
    wrapped: bytes
    """Nonce (12 B), AES-256-GCM ciphertext, tag."""


class KeyStore:
    """One SQLite file. Used by one thread at a time; several processes may each have their own."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        with self._errors():
            # made by one thread, then handed to the one that writes
            self._db = sqlite3.connect(
                path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False
            )
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.executescript(_SCHEMA)

    def add(self, hour_keys: Sequence[HourKey], data_keys: Sequence[DataKey]) -> None:
        """Write new records in one transaction that is on disk when this returns.

        Records of ids that are there already are the same ones: a commit whose outcome was
        unknown is simply made again.
        """
        with self._errors(), self._transaction():
            self._db.executemany(
                "INSERT OR IGNORE INTO hour_key VALUES (?, ?, ?, ?)",
                [(k.hour_key_id, k.process, k.hour, k.sealed) for k in hour_keys],
            )
            self._db.executemany(
                "INSERT OR IGNORE INTO data_key VALUES (?, ?, ?, ?)",
                [(k.key_id, k.subject, k.hour_key_id, k.wrapped) for k in data_keys],
            )

    def data_key(self, key_id: str) -> DataKey | None:
        """The record of `key_id`; None if there is none."""
        with self._errors():
            row = self._db.execute(
                "SELECT key_id, subject, hour_key_id, wrapped FROM data_key WHERE key_id = ?",
                (key_id,),
            ).fetchone()
        return None if row is None else DataKey(*row)

    def hour_key(self, hour_key_id: str) -> HourKey | None:
        """The record of `hour_key_id`; None if there is none."""
        with self._errors():
            row = self._db.execute(
                "SELECT hour_key_id, process, hour, sealed FROM hour_key WHERE hour_key_id = ?",
                (hour_key_id,),
            ).fetchone()
        return None if row is None else HourKey(*row)

    def close(self) -> None:
        """Let go of the file."""
        self._db.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """SQLite's errors as ours."""
        try:
            yield
        except sqlite3.OperationalError as error:
            raise Unavailable(
                f"key store {self._path}: {error}; nothing was written, free the file or the disk"
            ) from None
        except sqlite3.ProgrammingError:
            raise  # wrong use of the file by us, not a damaged file
        except sqlite3.DatabaseError as error:
            raise BadState(
                f"key store {self._path}: {type(error).__name__}; restore it from a backup"
            ) from None
