"""A table followed at its newest version, cheaply however many commits it gets.

In:   a lake and a table
Out:  a delta-rs handle at the newest version, and the txns as of it
Refuses: what `tables.open` refuses, at every look; Unavailable if the store does not answer
Never: keeps one delta-rs handle for long: it holds on to every commit since it was opened, newer
      checkpoints or not, and each look and each write then costs more (16 ms at first, 42 ms after
      400 commits; opened again: 17 ms)
"""

from __future__ import annotations

from collections.abc import Mapping

from deltalake import DeltaTable

from afterbay.lakehouse import tables
from afterbay.lakehouse.commits import TxnLog
from afterbay.lakehouse.lake import Lake

REOPEN_COMMITS = 25
"""Commits after which a handle is opened again."""


class TableHandle:
    """One table as one owner sees it. Used by one thread at a time."""

    def __init__(self, lake: Lake, table: str) -> None:
        self._lake = lake
        self._table = table
        self._handle: DeltaTable | None = None
        self._opened_at = 0
        self._log = TxnLog(lake, table)

    @property
    def txns(self) -> Mapping[str, int]:
        """Txn versions by app id, as of the last look."""
        return self._log.txns

    def newest(self) -> DeltaTable:
        """The handle at the newest version; `txns` is as of it."""
        handle = self._handle
        if handle is None or handle.version() - self._opened_at >= REOPEN_COMMITS:
            handle = tables.open(self._lake, self._table)
            self._handle, self._opened_at = handle, handle.version()
        else:
            tables.refresh(self._lake, self._table, handle)
        self._log.advance(handle.version())
        if self._log.metadata_changed:
            tables.check_configuration(self._table, handle)
        return handle

    def afresh(self) -> DeltaTable:
        """As `newest`, forgetting everything known so far."""
        self._handle = None
        self._log = TxnLog(self._lake, self._table)
        return self.newest()
