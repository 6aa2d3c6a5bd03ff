"""Runs whose code server died are given up; those that only wait are not."""

from __future__ import annotations

from uuid import uuid4

import dagster as dg

from afterbay.dagster_defs.serve import give_up_orphans


def test_runs_that_nobody_executes_are_failed_and_queued_ones_wait() -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        names = {
            status: str(uuid4()) for status in ("NOT_STARTED", "STARTED", "STARTING", "SUCCESS")
        }
        for status, run_id in names.items():
            instance.add_run(
                dg.DagsterRun(job_name="train", run_id=run_id, status=dg.DagsterRunStatus(status))
            )
        assert give_up_orphans(instance) == 2
        found = {}
        for status, run_id in names.items():
            run = instance.get_run_by_id(run_id)
            assert run is not None
            found[status] = run.status.value
        assert found == {
            "NOT_STARTED": "NOT_STARTED",
            "STARTED": "FAILURE",
            "STARTING": "FAILURE",
            "SUCCESS": "SUCCESS",
        }
        assert give_up_orphans(instance) == 0
