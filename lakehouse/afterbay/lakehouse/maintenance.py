"""Keep tables quick to open and to read: checkpoints, and few large files instead of many small.

In:   a table, while its writers go on appending
Out:  `Maintained`: what was done, as numbers
Refuses: a second maintainer of the same lake (Fenced, naming the process that holds the lease)
Never: removes rows, positions or log files; a checkpoint is read back before anybody relies on it
"""

from __future__ import annotations

import fcntl
import json
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from deltalake import DeltaTable

from afterbay.lakehouse import tables
from afterbay.lakehouse.commits import LOG, TxnLog, read_commit
from afterbay.lakehouse.durable import sync_commits, sync_paths
from afterbay.lakehouse.files import data_files
from afterbay.lakehouse.lake import Lake
from afterbay.schemas.errors import BadSettings, BadState, Fenced

LEASE = ".maintenance.lease"


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceSettings:
    """When to do what. Made by the entry point."""

    checkpoint_commits: int = 50
    """Commits after which a checkpoint is written."""
    small_files: int = 40
    """Files of one partition that make it worth compacting."""
    target_bytes: int = 128 * 1024 * 1024
    """Size of a compacted file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Maintained:
    """What one round did to one table. Made by `maintain`, logged by the agent."""

    table: str
    checkpoint: int | None
    """Version of the checkpoint written; None if none was due."""
    files_before: int
    """Files of the partitions that were compacted."""
    files_after: int
    """Files they became."""


@contextmanager
def lease(lake: Lake) -> Iterator[None]:
    """Hold the right to maintain `lake`; the operating system ends it with the process."""
    folder = lake.folder
    if folder is None:
        raise BadSettings(
            f"lake {lake.root}: maintenance of an object store needs a lease that outlives hosts, "
            "which is not built yet; run it where the tables are on a local disk"
        )
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LEASE).open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise Fenced(
                f"lake {lake.root}: process {file.read().strip() or 'unknown'} maintains it "
                "already; one is enough"
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def maintain(lake: Lake, table: str, settings: MaintenanceSettings) -> Maintained:
    """One round over one table; call it under `lease`."""
    handle = tables.open(lake, table)
    before, after = _compact(lake, table, handle, settings)
    return Maintained(
        table=table,
        checkpoint=_checkpoint(lake, table, settings.checkpoint_commits),
        files_before=before,
        files_after=after,
    )


def _compact(
    lake: Lake, table: str, handle: DeltaTable, settings: MaintenanceSettings
) -> tuple[int, int]:
    totals = Counter[str]()
    for partition in _crowded(table, handle, settings.small_files):
        start = handle.version()
        found = handle.optimize.compact(
            partition_filters=[(name, "=", label) for name, label in partition],
            target_size=settings.target_bytes,
            writer_properties=tables.WRITER,
            post_commithook_properties=tables.NO_HOOKS,
        )
        totals["before"] += found["numFilesRemoved"]
        totals["after"] += found["numFilesAdded"]
        handle.update_incremental()
        commits = (read_commit(lake, table, v) for v in range(start + 1, handle.version() + 1))
        sync_commits(lake, table, [c for c in commits if c is not None])
    return totals["before"], totals["after"]


def _crowded(table: str, handle: DeltaTable, limit: int) -> list[tuple[tuple[str, str], ...]]:
    """Partitions with more files than it is worth having."""
    files = data_files(handle, tables.partition_columns(table))
    counted = Counter(file.partition for file in files)
    return sorted(partition for partition, count in counted.items() if count >= limit)


def _checkpoint(lake: Lake, table: str, commits: int) -> int | None:
    handle = tables.open(lake, table)
    version = handle.version()
    if version - _last_checkpoint(lake, table) < commits:
        return None
    positions = dict(TxnLog(lake, table).advance(version))
    files = sorted(handle.file_uris())
    handle.create_checkpoint()
    _sync_checkpoint(lake, table, version)
    # read back: from here on the log is read from the checkpoint on, by everybody
    again = tables.open(lake, table, version)
    if TxnLog(lake, table).advance(version) != positions or sorted(again.file_uris()) != files:
        raise BadState(
            f"table {table}: checkpoint {version} does not hold what the commits before it say; "
            "delete it and _last_checkpoint, those commits are all kept"
        )
    return version


def _sync_checkpoint(lake: Lake, table: str, version: int) -> None:
    folder = lake.path(table)
    if folder is not None:
        log = folder / LOG
        parts = sorted(log.glob(f"{version:020}.checkpoint*.parquet"))
        sync_paths(table, [*parts, log / "_last_checkpoint", log])


def _last_checkpoint(lake: Lake, table: str) -> int:
    data = lake.read(table, f"{LOG}/_last_checkpoint")
    return -1 if data is None else int(json.loads(data)["version"])
