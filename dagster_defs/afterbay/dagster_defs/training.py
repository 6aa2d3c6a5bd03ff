"""A training from slice to published snapshot, as four assets of one run.

In:   table `experience`; the current snapshot
Out:  a sealed snapshot under `snapshots/`, its evaluation, and the events that it is published and
      now a canary
Refuses: to publish a candidate that the gate holds back
Never: imports torch: training and evaluation are programs of `afterbay.trainers`

Every step may be run again. What a step needs of an earlier one lies in the training's folder,
named after the run that began it; a re-execution from the failed step keeps that name.
"""

import json
import math
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg

from afterbay.dagster_defs.catalog import EXPERIENCE, LOOP
from afterbay.dagster_defs.installation import Installation, Training
from afterbay.dagster_defs.judging import Estimate, Gate, gate
from afterbay.dsa.rewards import Edges, SourceMean
from afterbay.lakehouse import slices
from afterbay.schemas import ids
from afterbay.schemas.errors import BadState
from afterbay.schemas.events import PolicySnapshot
from afterbay.streams.arms import Action, ArmState
from afterbay.streams.publishing import publish_decided
from afterbay.streams.snapshots import Manifest, snapshot_event, uri_of

DAYS = dg.DailyPartitionsDefinition(start_date="2025-01-01", end_offset=1)
"""Days of experience, UTC; today is among them."""
SNAPSHOT_TAG = "afterbay/snapshot_id"
"""Run tag: the snapshot that a training makes."""
GATE = "gate"
TRAINER_POOL = "trainer"


def training_id(context: dg.AssetExecutionContext) -> str:
    """The run that began this training: re-executions share its id."""
    return context.run.root_run_id or context.run.run_id


@dg.asset(
    partitions_def=DAYS,
    deps=[EXPERIENCE],
    group_name=LOOP,
    kinds={"polars"},
    metadata={"held out": f"1 session in {slices.HELD_OUT_OF}"},
)
def replay_slice(
    context: dg.AssetExecutionContext, installation: dg.ResourceParam[Installation]
) -> dg.MaterializeResult[None]:
    """The experience that one training reads: everything rewarded until the end of a day.

    A slice is defined by offsets over the inferences, rewards and drops behind it, so it reads the
    same rows whenever it is read. One session in ten is held out for the evaluation.
    """
    papers = installation.training(training_id(context))
    papers.folder.mkdir(parents=True, exist_ok=True)
    plan = _plan(papers, installation)
    context.instance.add_run_tags(context.run.run_id, {SNAPSHOT_TAG: plan["snapshot_id"]})
    spec = _slice(papers, installation, context.partition_key)
    return dg.MaterializeResult(
        metadata={
            "rows": spec.rows,
            "digest": spec.digest,
            "seed": spec.seed,
            "snapshots published": len(spec.published),
            "slice": dg.MetadataValue.json(json.loads(spec.to_json())),
        }
    )


@dg.asset(deps=[replay_slice], group_name=LOOP, kinds={"pytorch"}, pool=TRAINER_POOL)
def policy_snapshot(
    context: dg.AssetExecutionContext,
    installation: dg.ResourceParam[Installation],
    pipes: dg.PipesSubprocessClient,
) -> dg.MaterializeResult[Any]:
    """A candidate: the current policy, trained further on the slice, sealed and signed.

    Runs `afterbay.trainers.train` as a process of its own. Experience it refuses (stale, expired,
    altered and so on) leaves as drop events, once, under the id of this training.
    """
    papers = installation.training(training_id(context))
    plan = read_json(papers.plan)
    command = _trainer(
        "train",
        *("--home", str(installation.settings.home), "--run-id", papers.training_id),
        *("--slice", str(papers.slice), "--parent", plan["parent_folder"]),
        *("--out", str(installation.new_snapshot(plan["snapshot_id"]))),
    )
    done = pipes.run(context=context, command=command)
    return done.get_materialize_result(implicit_materialization=True)


@dg.asset(
    deps=[policy_snapshot],
    group_name=LOOP,
    kinds={"pytorch"},
    check_specs=[
        dg.AssetCheckSpec(
            GATE,
            asset="policy_evaluation",
            blocking=True,
            description="The candidate is not worse than the current policy on held-out sessions.",
        )
    ],
)
def policy_evaluation(
    context: dg.AssetExecutionContext, installation: dg.ResourceParam[Installation]
) -> dg.MaterializeResult:  # type: ignore[type-arg]  # beside a check Dagster wants it bare
    """What the candidate would have earned on the held-out sessions, beside the current policy.

    Self-normalised importance sampling over rows that no training has seen. The gate asks that the
    candidate loses at most a margin, at an effective sample size that makes the question fair.
    """
    papers = installation.training(training_id(context))
    plan = read_json(papers.plan)
    numbers = _evaluate(papers, plan, installation)
    papers.evaluation.write_text(json.dumps(numbers), encoding="utf-8")
    settings = installation.settings
    verdict = gate(
        _estimate(numbers, "candidate"),
        _estimate(numbers, "current"),
        margin=settings.gate_margin,
        least_ess=settings.gate_ess,
    )
    context.log.info("gate: %s", verdict.why)
    return dg.MaterializeResult(
        metadata=flat(numbers), check_results=[_checked(verdict, asked=settings.gate)]
    )


@dg.asset(deps=[policy_evaluation], group_name=LOOP, kinds={"kafka"})
def policy_publication(
    context: dg.AssetExecutionContext, installation: dg.ResourceParam[Installation]
) -> dg.MaterializeResult[None]:
    """The candidate, told to everybody: published, and a canary for its share of the sessions.

    Nodes verify signature and digest, load it and acknowledge. Both events leave in one transaction
    under this training's id; a snapshot that was told already is not told again.
    """
    papers = installation.training(training_id(context))
    plan = read_json(papers.plan)
    folder = installation.new_snapshot(plan["snapshot_id"])
    manifest = installation.verified(folder, plan["snapshot_id"])
    sent = publish_decided(
        installation.address,
        manifest.policy,
        papers.training_id,
        lambda arms: _announcement(
            arms, folder, manifest, flat(read_json(papers.evaluation)), installation
        ),
        installation.clock,
    )
    return dg.MaterializeResult(
        metadata={
            "snapshot": manifest.snapshot_id,
            "digest": manifest.digest,
            "events sent now": len(sent),
            "split": installation.settings.canary_split,
            "folder": dg.MetadataValue.path(folder),
        }
    )


def read_json(file: Path) -> dict[str, Any]:
    """The object in one of a training's papers; BadState naming the step that writes it."""
    try:
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadState(
            f"training {file.parent.name} has no {file.name}; run its earlier steps, or begin a "
            "new training with replay_slice"
        ) from None
    return found


def flat(numbers: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """Every number in a nested object, by dotted name."""
    found: dict[str, float] = {}
    for name, value in numbers.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{name}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found[f"{prefix}{name}"] = float(value)
    return found


def _plan(papers: Training, installation: Installation) -> dict[str, Any]:
    """What is trained from what; made once, so that a repeated run makes the same snapshot."""
    if papers.plan.exists():
        return read_json(papers.plan)
    current = installation.arms().current
    if current is None:
        raise BadState(
            f"policy {installation.settings.policy}: none was promoted, so there is nothing to "
            "train further; publish one made by `afterbay policy warmstart`"
        )
    plan = {
        "snapshot_id": ids.new_id(installation.clock.now()),
        "parent": current.snapshot_id,
        "parent_folder": str(installation.folder(current)),
    }
    papers.plan.write_text(json.dumps(plan), encoding="utf-8")
    return plan


def _slice(papers: Training, installation: Installation, day: str) -> slices.SliceSpec:
    if papers.slice.exists():
        return slices.from_json(papers.slice.read_bytes())
    settings = installation.settings
    end = datetime.fromisoformat(day).replace(tzinfo=UTC) + timedelta(days=1)
    until = min(end, installation.clock.now())
    spec = slices.plan(
        installation.lake,
        policy=settings.policy,
        since=until - timedelta(days=settings.slice_days),
        until=until,
        function_id=SourceMean().function_id,
        edges_id=Edges().edges_id,
        max_lag=settings.max_lag,
        max_age=timedelta(seconds=settings.max_age_s),
        seed=settings.seed,
    )
    papers.slice.write_text(spec.to_json(), encoding="utf-8")
    return spec


def _trainer(program: str, *args: str) -> list[str]:
    return [sys.executable, "-P", "-m", f"afterbay.trainers.{program}", *args]


def _evaluate(
    papers: Training, plan: Mapping[str, Any], installation: Installation
) -> dict[str, Any]:
    command = _trainer(
        "offpolicy",
        *("--home", str(installation.settings.home), "--slice", str(papers.slice), "--json"),
        *("--candidate", str(installation.new_snapshot(plan["snapshot_id"]))),
        *("--current", plan["parent_folder"]),
    )
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,  # its errors go to the run's own log
        timeout=installation.settings.evaluation_timeout_s,
        check=False,
    )
    if done.returncode != 0:
        raise BadState(
            f"training {papers.training_id}: the evaluation ended with exit code "
            f"{done.returncode}; its last words are in this step's stderr"
        )
    numbers: dict[str, Any] = json.loads(done.stdout)
    return numbers


def _estimate(numbers: Mapping[str, Any], side: str) -> Estimate:
    found = numbers[side]
    snips, ess = (math.nan if found[name] is None else found[name] for name in ("snips", "ess"))
    return Estimate(snips=float(snips), ess=float(ess))


def _checked(verdict: Gate, *, asked: bool) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(
        check_name=GATE,
        passed=verdict.passed or not asked,
        metadata={
            "why": verdict.why if asked else f"the gate is off (it would say: {verdict.why})",
            "difference": verdict.difference,
            "effective sample size": verdict.ess,
        },
    )


def _announcement(
    arms: ArmState,
    folder: Path,
    manifest: Manifest,
    evaluation: Mapping[str, float],
    installation: Installation,
) -> list[PolicySnapshot]:
    """Published and canary, for a snapshot that nobody was told of; nothing for one that is known.

    BadState while another canary is being judged: it would be cut short.
    """
    if manifest.snapshot_id in arms.snapshots:
        return []
    if arms.candidate is not None:
        raise BadState(
            f"snapshot {arms.candidate.snapshot_id} is a canary and not judged yet; re-execute "
            "this step once it is"
        )

    def told(action: Action, split: float | None = None) -> PolicySnapshot:
        return snapshot_event(
            folder,
            manifest,
            action,
            event_id=ids.new_id(installation.clock.now()),
            uri=uri_of(folder, installation.settings.home),
            split=split,
            metrics={**manifest.metrics, **evaluation},
        )

    return [told("published"), told("canary", installation.settings.canary_split)]
