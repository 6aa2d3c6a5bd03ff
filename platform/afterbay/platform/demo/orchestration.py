"""What Dagster did, asked over its GraphQL: trainings, their times and figures.

In:   the address of Dagster's web server
Out:  `Run`s of the jobs that train and promote
Never: starts, stops or changes a run
"""

from __future__ import annotations

import json
import urllib.request
from dataclasses import dataclass
from typing import Any

from afterbay.schemas.errors import Unavailable

TRAINER_STEP = "policy_snapshot"
_TIMEOUT_S = 10.0
_UNDER_WAY = {"QUEUED", "NOT_STARTED", "STARTING", "STARTED", "CANCELING"}
_ASK = """
query Demo($since: Float!) {
  runsOrError(filter: {createdAfter: $since}, limit: 200) {
    ... on Runs { results { runId jobName status stepStats { stepKey startTime endTime } } }
    ... on PythonError { message }
  }
  assetOrError(assetKey: {path: ["policy_snapshot"]}) {
    ... on Asset { assetMaterializations(limit: 200) { runId metadataEntries {
      label
      ... on FloatMetadataEntry { floatValue }
      ... on IntMetadataEntry { intRepr }
      ... on TextMetadataEntry { text }
    } } }
  }
}
"""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a Dagster job. Made by `runs_since`."""

    run_id: str
    job: str
    status: str
    """Dagster's word: QUEUED, STARTED, SUCCESS, FAILURE …"""
    trainer: tuple[float, float] | None
    """Start and end of the training step, seconds since the epoch; None if it is not done."""
    snapshot_id: str | None
    """The snapshot it trained; None if it made none."""
    metrics: dict[str, float]
    """Figures of its training."""

    @property
    def under_way(self) -> bool:
        """True until it has ended, well or badly."""
        return self.status in _UNDER_WAY


def runs_since(address: str, since: float) -> list[Run]:
    """Runs created after `since` (seconds since the epoch), oldest first."""
    body = json.dumps({"query": _ASK, "variables": {"since": since}}).encode()
    request = urllib.request.Request(  # noqa: S310  # the address `afterbay up` gave, always http
        f"{address.rstrip('/')}/graphql", body, {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as reply:  # noqa: S310  # as above
            found = json.load(reply)
    except (OSError, ValueError) as error:
        raise Unavailable(f"Dagster at {address}: {type(error).__name__}; is it up?") from None
    return runs_of(found)


def runs_of(reply: dict[str, Any]) -> list[Run]:
    """The runs in a GraphQL reply."""
    data = reply.get("data") or {}
    results = (data.get("runsOrError") or {}).get("results")
    if results is None:
        raise Unavailable("Dagster's GraphQL gave no runs; see its log in the home's `run` folder")
    made = (data.get("assetOrError") or {}).get("assetMaterializations") or []
    figures = {one["runId"]: _values(one["metadataEntries"]) for one in made}
    return [_run(result, figures.get(result["runId"], {})) for result in reversed(results)]


def _values(entries: list[dict[str, Any]]) -> dict[str, str | float]:
    values: dict[str, str | float] = {}
    for entry in entries:
        if entry.get("floatValue") is not None:
            values[entry["label"]] = float(entry["floatValue"])
        elif entry.get("intRepr") is not None:
            values[entry["label"]] = float(entry["intRepr"])
        elif entry.get("text") is not None:
            values[entry["label"]] = str(entry["text"])
    return values


def _run(result: dict[str, Any], figures: dict[str, str | float]) -> Run:
    steps = {step["stepKey"]: step for step in result["stepStats"]}
    step = steps.get(TRAINER_STEP) or {}
    start, end = step.get("startTime"), step.get("endTime")
    snapshot_id = figures.get("snapshot_id")
    return Run(
        run_id=result["runId"],
        job=result["jobName"],
        status=result["status"],
        trainer=(start, end) if start and end else None,
        snapshot_id=snapshot_id if isinstance(snapshot_id, str) else None,
        metrics={name: value for name, value in figures.items() if isinstance(value, float)},
    )
