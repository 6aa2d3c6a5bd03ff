"""The end of a canary: its arms are compared, and the candidate stays or goes.

In:   the canary under way, the newest rewards of both its arms
Out:  one event, promoted or rolled_back
Refuses: to judge before enough rewards came or the time is over
Never: waits; a sensor looks every few seconds whether it is time
"""

import dagster as dg

from afterbay.dagster_defs.catalog import LOOP
from afterbay.dagster_defs.installation import Canary, Installation
from afterbay.dagster_defs.judging import Verdict, canary_is_over, judge
from afterbay.dagster_defs.training import policy_publication
from afterbay.schemas import ids
from afterbay.schemas.errors import BadState
from afterbay.schemas.events import PolicySnapshot
from afterbay.streams.arms import ArmState
from afterbay.streams.publishing import publish_decided
from afterbay.streams.snapshots import next_event

CANARY_TAG = "afterbay/canary"
"""Run tag: id of the event that began the canary which the run judges."""


@dg.asset(deps=[policy_publication], group_name=LOOP, kinds={"kafka"})
def policy_promotion(
    context: dg.AssetExecutionContext, installation: dg.ResourceParam[Installation]
) -> dg.MaterializeResult[None]:
    """The candidate's fate: promoted if its customers were no worse off, else rolled back.

    Compares the newest rewards of both arms, of answers given since the canary began. Publishes
    only if that canary is still the one under way; judging it twice changes nothing.
    """
    canary = installation.canary(installation.arms())
    if canary is None:
        return dg.MaterializeResult(metadata={"why": "no canary is under way"})
    if not is_over(canary, installation):
        raise BadState(
            f"canary of snapshot {canary.candidate.snapshot_id}: too early to judge; the sensor "
            "`canary` does it as soon as there is enough to compare"
        )
    verdict = _verdict(canary, installation)
    context.log.info("%s: %s", verdict.action, verdict.why)
    sent = publish_decided(
        installation.address,
        installation.settings.policy,
        f"judge/{canary.event_id}",
        lambda arms: _sentence(arms, canary, verdict, installation),
        installation.clock,
    )
    return dg.MaterializeResult(metadata=_shown(canary, verdict, len(sent)))


def is_over(canary: Canary, installation: Installation) -> bool:
    """Whether `canary` can be judged now."""
    settings = installation.settings
    return canary_is_over(
        len(canary.candidate_rewards),
        (installation.clock.now() - canary.began).total_seconds(),
        rewards_asked=settings.canary_rewards,
        seconds_asked=settings.canary_s,
    )


def _verdict(canary: Canary, installation: Installation) -> Verdict:
    settings = installation.settings
    return judge(
        canary.candidate_rewards,
        canary.current_rewards,
        least=settings.canary_least,
        z=settings.canary_z,
    )


def _sentence(
    arms: ArmState, canary: Canary, verdict: Verdict, installation: Installation
) -> list[PolicySnapshot]:
    """The event of `verdict`; none if the canary that it is about has ended by other means."""
    if arms.canary_event_id != canary.event_id:
        return []
    return [
        next_event(
            canary.candidate,
            verdict.action,
            event_id=ids.new_id(installation.clock.now()),
            metrics=_numbers(verdict),
        )
    ]


def _numbers(verdict: Verdict) -> dict[str, float]:
    return {
        "canary.candidate_mean": verdict.candidate_mean,
        "canary.current_mean": verdict.current_mean,
        "canary.candidate_n": verdict.candidate_n,
        "canary.current_n": verdict.current_n,
        "canary.difference": verdict.difference,
        "canary.standard_error": verdict.standard_error,
    }


def _shown(canary: Canary, verdict: Verdict, sent: int) -> dict[str, str | int | float]:
    return {
        "snapshot": canary.candidate.snapshot_id,
        "action": verdict.action,
        "why": verdict.why,
        "events sent now": sent,
        **_numbers(verdict),
    }
