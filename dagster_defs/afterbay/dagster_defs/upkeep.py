"""Looking after the tables: one asset that tends them, two checks that look, one nightly job.

In:   every table
Out:  numbers in the catalogue; a failed check where something is wrong
Refuses: to tend tables while another process does (the maintenance agent, usually)
Never: changes a row
"""

import dagster as dg
import polars as pl

from afterbay.dagster_defs.catalog import ARCHIVE, LEDGER, table_key
from afterbay.dagster_defs.installation import Installation
from afterbay.lakehouse import maintenance, tables
from afterbay.lakehouse.prove import prove
from afterbay.schemas.errors import Fenced

MOST_SHOWN = 20
"""Differences that a failed check shows; `afterbay prove` shows all."""


@dg.asset(deps=[table_key(name) for name in tables.NAMES], group_name=LEDGER, kinds={"deltalake"})
def table_maintenance(installation: dg.ResourceParam[Installation]) -> dg.MaterializeResult[None]:
    """Checkpoints, and few large files instead of many small ones, for every table.

    The maintenance agent does the same all the time; this is for installations without it, and for
    looking. While another process holds the lease nothing is done.
    """
    try:
        with maintenance.lease(installation.lake):
            done = [
                maintenance.maintain(installation.lake, name, maintenance.MaintenanceSettings())
                for name in tables.NAMES
            ]
    except Fenced as held:
        return dg.MaterializeResult(metadata={"left to": str(held)})
    return dg.MaterializeResult(
        metadata={
            "tables": len(done),
            "checkpoints written": sum(d.checkpoint is not None for d in done),
            "files before": sum(d.files_before for d in done),
            "files after": sum(d.files_after for d in done),
        }
    )


@dg.asset_check(asset=ARCHIVE)
def completeness(installation: dg.ResourceParam[Installation]) -> dg.AssetCheckResult:
    """Every event is in the archive and in its table, exactly once, and experience agrees."""
    proof = prove(installation.lake)
    return dg.AssetCheckResult(
        passed=proof.ok,
        metadata={
            "differences": len(proof.differences),
            "first differences": "\n".join(map(str, proof.differences[:MOST_SHOWN])) or "none",
            **{f"events in {name}": int(count) for name, count in proof.counts.items()},
        },
    )


@dg.asset_check(asset=table_key("inference"))
def freshness(installation: dg.ResourceParam[Installation]) -> dg.AssetCheckResult:
    """The newest answer in the tables is young; a warning, because customers may be asleep."""
    newest = (
        pl.scan_delta(tables.open(installation.lake, "inference"))
        .select(pl.col("completed_at").max())
        .collect()
        .item()
    )
    if newest is None:
        return dg.AssetCheckResult(
            passed=False, severity=dg.AssetCheckSeverity.WARN, metadata={"newest": "no answer yet"}
        )
    age_s = (installation.clock.now() - newest).total_seconds()
    return dg.AssetCheckResult(
        passed=age_s <= installation.settings.fresh_s,
        severity=dg.AssetCheckSeverity.WARN,
        metadata={"age_s": age_s, "newest": dg.MetadataValue.timestamp(newest)},
    )


inspect = dg.define_asset_job(
    "inspect",
    selection=dg.AssetSelection.checks(completeness, freshness),
    executor_def=dg.in_process_executor,
    description="Prove every table against the archive, and look whether data still arrive.",
)
nightly = dg.ScheduleDefinition(
    name="nightly",
    job=inspect,
    cron_schedule="17 3 * * *",
    execution_timezone="UTC",
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Inspects the tables every night.",
)
