"""From a slice to what a learner reads: usable rows with their behaviour log-probs, and refusals.

In:   rows of a slice, its limits, the policy to be trained, logged snapshots for altered rows
Out:  `Replay`, and one `Refusal` for each row that must not be used
Refuses: as values: expired, stale, untrainable, tokenizer, length, nan_logprob and altered rows
Never: guesses a log-prob: those of a row whose prompt was masked are computed anew with the
       snapshot that answered, on the masked ids, and without that snapshot the row is refused
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import torch

from afterbay.lakehouse.positions import Positions, SourcePartition
from afterbay.lakehouse.slices import SliceSpec
from afterbay.schemas.errors import BadSettings
from afterbay.schemas.topics import topic
from afterbay.trainers.batch import Sample
from afterbay.trainers.learner import Rewarded
from afterbay.trainers.policy import LocalPolicy
from afterbay.trainers.sampling import SamplingParams
from afterbay.trainers.tokenizer import MASK_ID

LEAST_TEMPERATURE = 0.1
"""Gradients grow with 1 / temperature: below it one answer outweighs a batch."""

COLUMNS = (
    "inference_id",
    "snapshot_id",
    "digest",
    "tokenizer",
    "tools",
    "prompt_ids",
    "response_ids",
    "response_logprobs",
    "loss_mask",
    "trainable",
    "altered",
    "sampling",
    "reward",
    "reward_topic_id",
    "reward_partition",
    "reward_offset",
    "held_out",
    "lag",
    "age_s",
)
REWARD_TOPIC = topic("reward.assigned.v2").name

Load = Callable[[str, str], LocalPolicy | None]
"""The policy of a (snapshot id, digest); None if it is not here any more."""
Row = Mapping[str, Any]
Logged = Sequence[float | None]
"""Log-probs of a response's tokens; None or NaN where one is not usable."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A row that no trainer may use. Becomes an `experience.dropped.v2` event."""

    inference_id: str
    stage: str
    """`slice` for its limits, `weigh` for what is wrong with the row."""
    reason: str
    """See topics.py."""
    lag: int


@dataclass(frozen=True, slots=True)
class Usable:
    """One row that may be used. Made by `replay_of`."""

    sample: Sample
    behaviour: tuple[float, ...]
    """Log-prob of each response token under the policy that gave it."""
    mask: tuple[bool, ...]
    """True where the token may be trained on."""
    reward: float
    held_out: bool
    """Its session is never trained on."""
    reward_place: tuple[SourcePartition, int]
    """Partition and offset of its reward."""


@dataclass(frozen=True, slots=True)
class Replay:
    """What is left of a slice, in the order of inference ids."""

    rows: tuple[Usable, ...]
    refusals: tuple[Refusal, ...]

    @property
    def trained(self) -> list[Usable]:
        """Rows that may be trained on."""
        return [row for row in self.rows if not row.held_out]

    @property
    def held_out(self) -> list[Usable]:
        """Rows that judge a candidate."""
        return [row for row in self.rows if row.held_out]


def replay_of(table: pa.Table, spec: SliceSpec, policy: LocalPolicy, load: Load) -> Replay:
    """Weigh every row of a slice against its limits and what the policy can use."""
    rows = table.select(COLUMNS).to_pylist()
    recomputed = _recomputed(rows, spec, policy, load)
    usable: list[Usable] = []
    refusals: list[Refusal] = []
    for number, row in enumerate(rows):
        behaviour: Logged = row["response_logprobs"] or []
        refused = _limit(row, spec) or _defect(row, policy)
        if row["altered"]:
            behaviour = recomputed.get(number, [])
            refused = refused or (None if behaviour else ("weigh", "altered"))
        if refused is None and not _finite(row, behaviour):
            refused = ("weigh", "nan_logprob")
        if refused is None:
            usable.append(_usable(row, behaviour))
        else:
            refusals.append(Refusal(row["inference_id"], *refused, row["lag"]))
    return Replay(tuple(usable), tuple(refusals))


def rewarded(policy: LocalPolicy, rows: Sequence[Usable]) -> Rewarded:
    """The rows as tensors, in their order."""
    batch = policy.prepare([row.sample for row in rows])
    behaviour = torch.zeros(batch.response.shape)
    mask = torch.zeros(batch.response.shape, dtype=torch.bool)
    for number, row in enumerate(rows):
        # a masked position may be NaN; it counts nowhere, so it may not poison a sum either
        kept = [v if m else 0.0 for v, m in zip(row.behaviour, row.mask, strict=True)]
        behaviour[number, : len(kept)] = torch.tensor(kept)
        mask[number, : len(kept)] = torch.tensor(row.mask)
    return Rewarded(batch, behaviour, mask, torch.tensor([row.reward for row in rows]))


def count_new(rows: Iterable[Usable], seen: Positions) -> int:
    """How many rows have a reward that a run which read up to `seen` did not see."""
    return sum(row.reward_place[1] >= seen.get(row.reward_place[0], 0) for row in rows)


def _limit(row: Row, spec: SliceSpec) -> tuple[str, str] | None:
    if row["age_s"] > spec.max_age_s:
        return "slice", "expired"
    return ("slice", "stale") if row["lag"] > spec.max_lag else None


def _defect(row: Row, policy: LocalPolicy) -> tuple[str, str] | None:
    """Why no policy, or not this one, can weigh the row."""
    whole = row["response_ids"] and row["prompt_ids"] is not None
    if not row["trainable"] or not _can_weigh(row) or not whole:
        return "weigh", "untrainable"
    if row["tokenizer"] != policy.tokenizer_fingerprint:
        return "weigh", "tokenizer"
    parts = [row[name] for name in ("response_ids", "response_logprobs", "loss_mask")]
    longest = policy.max_response_tokens
    if any(part is None or not len(parts[0]) == len(part) <= longest for part in parts):
        return "weigh", "length"
    if MASK_ID in row["response_ids"]:
        return "weigh", "altered"
    accepted = policy.accepts(tuple(row["tools"]), row["response_ids"])
    return None if accepted else ("weigh", "untrainable")


def _can_weigh(row: Row) -> bool:
    """False for sampling whose answers had next to no alternative, or that nobody can repeat."""
    try:
        return _sampling(row).temperature >= LEAST_TEMPERATURE
    except BadSettings:
        return False


def _finite(row: Row, behaviour: Logged) -> bool:
    counted = zip(behaviour, row["loss_mask"], strict=True)
    return all(value is not None and math.isfinite(value) for value, used in counted if used)


def _usable(row: Row, behaviour: Logged) -> Usable:
    place = SourcePartition(REWARD_TOPIC, row["reward_topic_id"], row["reward_partition"])
    return Usable(
        _sample(row),
        tuple(math.nan if value is None else value for value in behaviour),
        tuple(bool(used) for used in row["loss_mask"]),
        row["reward"],
        row["held_out"],
        (place, row["reward_offset"]),
    )


def _sample(row: Row) -> Sample:
    ids = tuple(row["prompt_ids"]), tuple(row["response_ids"])
    return Sample(*ids, tuple(row["tools"]), _sampling(row))


def _sampling(row: Row) -> SamplingParams:
    logged = row["sampling"]
    return SamplingParams(logged["temperature"], logged["top_p"], logged["top_k"], logged["min_p"])


def _recomputed(
    rows: Sequence[Row], spec: SliceSpec, policy: LocalPolicy, load: Load
) -> dict[int, list[float]]:
    """Behaviour log-probs of altered rows by row number, where their snapshot is at hand."""
    wanted: dict[tuple[str, str], list[int]] = {}
    for number, row in enumerate(rows):
        if row["altered"] and not (_limit(row, spec) or _defect(row, policy)):
            wanted.setdefault((row["snapshot_id"], row["digest"]), []).append(number)
    found: dict[int, list[float]] = {}
    for snapshot, numbers in sorted(wanted.items()):
        behaviour = load(*snapshot)
        if behaviour is None:
            continue
        batch = behaviour.prepare([_sample(rows[number]) for number in numbers])
        with torch.inference_mode():
            values = behaviour.log_probs(batch).tolist()
        for number, value in zip(numbers, values, strict=True):
            found[number] = value[: len(rows[number]["response_ids"])]
    return found
