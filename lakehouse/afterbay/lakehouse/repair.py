"""Take a table back to an older version, rows and positions alike: its writer then fills it again.

In:   a table whose newest versions are damaged or unwanted, and the version to go back to
Out:  one commit with that version's files and that version's positions; what to say of a lost file
Refuses: a version that is not there or that lacks files itself (BadState)
Never: deletes a file, rewrites the log, or moves a position ahead

Delta's own RESTORE takes back rows only: positions stay where they were, and what lies between is
never written again. The rows after the version come from Kafka once more; what that no longer
holds stops the sink (OffsetGap).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow.fs as pa_fs
from deltalake import CommitProperties, Transaction
from deltalake.exceptions import DeltaError

from afterbay.lakehouse import tables
from afterbay.lakehouse.commits import TxnLog, read_commit
from afterbay.lakehouse.durable import sync_commits
from afterbay.lakehouse.files import data_files
from afterbay.lakehouse.lake import Lake
from afterbay.schemas.errors import AfterbayError, BadState, Unavailable


def restore(lake: Lake, table: str, version: int) -> int:
    """Let `table` be what it was at `version`; the version of the commit that says so.

    Writers that run meanwhile are fenced, and look at the table anew or end.
    """
    handle = tables.open(lake, table)
    if not 0 <= version <= handle.version():
        raise BadState(f"table {table}: no version {version}; it has 0 to {handle.version()}")
    then = TxnLog(lake, table).advance(version)
    now = TxnLog(lake, table).advance(handle.version())
    back = [Transaction(app_id, then.get(app_id, 0)) for app_id in sorted(now)]
    try:
        handle.restore(
            version,
            commit_properties=CommitProperties(app_transactions=back),
            post_commithook_properties=tables.NO_HOOKS,
        )
    except (DeltaError, OSError) as error:
        raise BadState(
            f"table {table}: cannot go back to version {version} ({type(error).__name__}); if "
            "files of it are missing too, choose an older one"
        ) from error
    handle.update_incremental()
    made = read_commit(lake, table, handle.version())
    sync_commits(lake, table, [] if made is None else [made])
    return handle.version()


@contextmanager
def reading(lake: Lake, table: str) -> Iterator[None]:
    """Say which file a reader did not find, and the way back; BadState, since no retry helps."""
    try:
        yield
    except FileNotFoundError as error:
        raise _lost_file(lake, table) from error


def _lost_file(lake: Lake, table: str) -> AfterbayError:
    handle = tables.open(lake, table)
    paths = [file.path for file in data_files(handle, ())]
    found = lake.filesystem(table).get_file_info(paths)
    lost = {i.path.lstrip("/") for i in found if i.type is pa_fs.FileType.NotFound}
    if not lost:
        return Unavailable(f"table {table}: a file was away for a moment; try again")
    version = handle.version()
    first = version
    while version > 0 and (commit := read_commit(lake, table, version)) is not None:
        first = version if lost.intersection(commit.added) else first
        version -= 1
    return BadState(
        f"table {table}: {len(lost)} data files are missing, {min(lost)} first; stop the agents, "
        f"`afterbay restore {table} {first - 1}`, and start them again: what came after that "
        "version is read from Kafka once more"
    )
