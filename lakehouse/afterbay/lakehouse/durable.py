"""Make commits survive a power cut: delta-rs writes files and never asks the disk to keep them.

In:   commits just made
Out:  data files, their folders, the commit's JSON and the log's folder are on the disk
Never: does anything for an object store, which acknowledges only what it keeps
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from afterbay.lakehouse.commits import LOG, Commit, commit_name
from afterbay.lakehouse.lake import Lake
from afterbay.schemas.errors import BadState


def sync_commits(lake: Lake, table: str, commits: Iterable[Commit]) -> None:
    """fsync everything `commits` brought; data first, the log last.

    BadState if the disk refuses: what is on it is then unknown, and asking again would lie.
    """
    folder = lake.path(table)
    if folder is None:
        return
    made = list(commits)
    files = [folder / name for commit in made for name in commit.added]
    logs = [folder / commit_name(commit.version) for commit in made]
    sync_paths(table, [*files, *_folders(folder, files), *logs, folder / LOG])


def sync_paths(table: str, paths: Iterable[Path]) -> None:
    """fsync files and folders in this order; a file that compaction already replaced is skipped."""
    for path in paths:
        try:
            handle = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            continue
        try:
            os.fsync(handle)
        except OSError as error:
            raise BadState(
                f"table {table}: the disk did not keep a file ({os.strerror(error.errno or 0)}); "
                "check the disk, then start again: the table itself tells what it holds"
            ) from None
        finally:
            os.close(handle)


def _folders(root: Path, files: Iterable[Path]) -> list[Path]:
    """Every folder between `root` and the files, deepest first, `root` included."""
    found = {parent for file in files for parent in file.parents if parent.is_relative_to(root)}
    return sorted(found, key=lambda path: len(path.parts), reverse=True)
