"""The code location: everything Dagster shows and runs.

In:   the assets, checks, sensors, jobs and schedules of this folder
Out:  `defs`, loaded by `dagster api grpc -m afterbay.dagster_defs.definitions`
Never: reads the environment at import; the resource `installation` does when a run or tick begins
"""

from __future__ import annotations

import dagster as dg

from afterbay.dagster_defs.catalog import external_assets
from afterbay.dagster_defs.installation import installation
from afterbay.dagster_defs.promotion import policy_promotion
from afterbay.dagster_defs.training import (
    policy_evaluation,
    policy_publication,
    policy_snapshot,
    replay_slice,
)
from afterbay.dagster_defs.triggers import canary, experience, promote, train
from afterbay.dagster_defs.upkeep import (
    completeness,
    freshness,
    inspect,
    nightly,
    table_maintenance,
)

defs = dg.Definitions(
    assets=[
        *external_assets(),
        replay_slice,
        policy_snapshot,
        policy_evaluation,
        policy_publication,
        policy_promotion,
        table_maintenance,
    ],
    asset_checks=[completeness, freshness],
    jobs=[train, promote, inspect],
    schedules=[nightly],
    sensors=[experience, canary],
    resources={"installation": installation, "pipes": dg.PipesSubprocessClient()},
    executor=dg.in_process_executor,
)
