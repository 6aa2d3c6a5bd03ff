"""When a training starts, and when a canary is judged: two sensors that only look.

In:   tables `experience` and `policy`, the runs that Dagster knows, a cursor
Out:  run requests, or the reason why not, which the UI shows
Refuses: nothing; what cannot be read fails the tick, and the next tick looks again
Never: waits, publishes, or opens more than the question at hand needs

The rules of `experience`, cheapest first. A training starts when

1. no training is queued or running: one at a time;
2. enough experience lies past the cursor (AFTERBAY_TRAIN_EVERY; corrected rewards count too);
3. a policy was promoted, and the last training's snapshot is known to the table `policy`: else its
   canary may have begun a moment ago without being seen yet;
4. no canary is being judged: a second candidate would cut it short;
5. the gate could pass: there is held-out experience for its effective sample size, twice over.
   Asked until it once was so.

The cursor moves when a training is requested, so one that fails or that the gate holds back is not
repeated on the same rows: the next one starts with as many new ones.
"""

from collections.abc import Iterator
from datetime import UTC, timedelta

import dagster as dg
import msgspec

from afterbay.dagster_defs.cursor import Cursor
from afterbay.dagster_defs.installation import Installation
from afterbay.dagster_defs.promotion import CANARY_TAG, is_over, policy_promotion
from afterbay.dagster_defs.training import (
    SNAPSHOT_TAG,
    policy_evaluation,
    policy_publication,
    policy_snapshot,
    replay_slice,
)
from afterbay.lakehouse import slices
from afterbay.streams.arms import ArmState

TICK_S = 5
"""Seconds between two looks; Dagster's own floor."""
UNDER_WAY = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]
MOST_JUDGEMENTS = 3
"""Failed runs over one canary after which the sensor leaves it to a person."""

train = dg.define_asset_job(
    "train",
    selection=[replay_slice, policy_snapshot, policy_evaluation, policy_publication],
    executor_def=dg.in_process_executor,
    description="Slice, training, evaluation behind the gate, publication as a canary.",
)
promote = dg.define_asset_job(
    "promote",
    selection=[policy_promotion],
    executor_def=dg.in_process_executor,
    description="Compare the arms of the canary; promote the candidate or roll it back.",
)


@dg.sensor(
    job=train,
    minimum_interval_seconds=TICK_S,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Starts a training when enough new experience has arrived and nothing is in doubt.",
)
def experience(
    context: dg.SensorEvaluationContext, installation: dg.ResourceParam[Installation]
) -> dg.SensorResult:
    """One look: a training, or the first rule that speaks against it."""
    cursor = Cursor.of(context.cursor)
    if _runs(context.instance, train.name, statuses=UNDER_WAY):
        return _not_yet("a training is under way", cursor)
    since = installation.clock.now() - timedelta(days=installation.settings.slice_days)
    new = slices.count_new(installation.lake, cursor.positions, since)
    if new.rows < installation.settings.train_every:
        asked = installation.settings.train_every
        return _not_yet(f"{new.rows} of {asked} new experiences", cursor)
    doubt = _doubt(context.instance, installation.arms())
    if doubt is not None:
        return _not_yet(doubt, cursor)
    held_out, asked = _evidence(cursor, installation)
    if held_out < asked:
        return _not_yet(f"{held_out} of {asked} held-out answers that the gate needs", cursor)
    proven = msgspec.structs.replace(cursor, evidence=True)
    today = installation.clock.now().astimezone(UTC).strftime("%Y-%m-%d")
    return dg.SensorResult(
        run_requests=[dg.RunRequest(partition_key=today, tags={"afterbay/new": str(new.rows)})],
        cursor=proven.moved(new.positions).text,
    )


@dg.sensor(
    job=promote,
    minimum_interval_seconds=TICK_S,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Has a canary judged once there are enough rewards, or its time is over.",
)
def canary(
    context: dg.SensorEvaluationContext, installation: dg.ResourceParam[Installation]
) -> Iterator[dg.RunRequest | dg.SkipReason]:
    """One look: a judgement, or why there is none yet."""
    under_way = installation.canary(installation.arms())
    if under_way is None:
        yield dg.SkipReason("no canary is under way")
        return
    runs = _runs(context.instance, promote.name, tags={CANARY_TAG: under_way.event_id})
    ended = (dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)
    failed = [run for run in runs if run.status in ended]
    if len(failed) < len(runs):
        yield dg.SkipReason("a run judges it, or has judged it a moment ago")
    elif len(failed) >= MOST_JUDGEMENTS:
        yield dg.SkipReason(f"{len(failed)} runs failed over it; see the last one's error")
    elif not is_over(under_way, installation):
        asked = installation.settings.canary_rewards
        yield dg.SkipReason(f"{len(under_way.candidate_rewards)} of {asked} candidate rewards")
    else:
        yield dg.RunRequest(tags={CANARY_TAG: under_way.event_id})


def _not_yet(reason: str, cursor: Cursor) -> dg.SensorResult:
    return dg.SensorResult(skip_reason=reason, cursor=cursor.text if cursor.places else None)


def _doubt(instance: dg.DagsterInstance, arms: ArmState) -> str | None:
    """Why a training would be trained from, or compared with, the wrong snapshot."""
    if arms.candidate is not None:
        return f"the canary of snapshot {arms.candidate.snapshot_id} is being judged"
    last = _runs(instance, train.name, statuses=[dg.DagsterRunStatus.SUCCESS], limit=1)
    published = last[0].tags.get(SNAPSHOT_TAG) if last else None
    if published is not None and published not in arms.snapshots:
        return f"snapshot {published} is published, but not in table `policy` yet"
    return None if arms.current is not None else "no policy was promoted yet"


def _evidence(cursor: Cursor, installation: Installation) -> tuple[int, int]:
    """Held-out answers in the tables, and how many the gate needs; nothing is read if it is off."""
    settings = installation.settings
    asked = int(2 * settings.gate_ess)
    if cursor.evidence or not settings.gate:
        return asked, asked
    since = installation.clock.now() - timedelta(days=settings.slice_days)
    return sum(slices.held_out(installation.sessions(since))), asked


def _runs(
    instance: dg.DagsterInstance,
    job: str,
    *,
    statuses: list[dg.DagsterRunStatus] | None = None,
    tags: dict[str, str] | None = None,
    limit: int | None = None,
) -> list[dg.DagsterRun]:
    asked = dg.RunsFilter(job_name=job, statuses=statuses, tags=tags)
    return list(instance.get_runs(asked, limit=limit))
