"""Dagster's code server of one home, once the runs of the one before it are given up.

In:   DAGSTER_HOME, the arguments of `dagster`
Out:  this process becomes `dagster …`; runs that nobody executes any more are failed
Never: touches a run that is only queued: the new code server starts it

Runs are children of the code server and die with it. Dagster's own monitoring does not notice: the
default launcher has no health check. A run that is under way for ever would hold its pool, and both
sensors would wait for it.
"""

import os
import sys
from collections.abc import Sequence

import dagster as dg

ORPHANS = [
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def give_up_orphans(instance: dg.DagsterInstance) -> int:
    """Fail every run under way; how many there were. Only while no code server runs."""
    orphans = instance.get_runs(dg.RunsFilter(statuses=ORPHANS))
    for run in orphans:
        instance.report_run_failed(run, "its code server ended before it did; nobody executes it")
    return len(orphans)


def main(arguments: Sequence[str]) -> None:
    """Give up orphans, then become `dagster` with `arguments`; does not return."""
    with dg.DagsterInstance.get() as instance:
        give_up_orphans(instance)
    os.execv(sys.executable, [sys.executable, "-P", "-m", "dagster", *arguments])


if __name__ == "__main__":
    main(sys.argv[1:])
