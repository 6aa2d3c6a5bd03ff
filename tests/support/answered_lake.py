"""A home whose lake holds answers that a real policy gave, with rewards: what trainers read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from afterbay.dsa.rewards import Edges, SourceMean
from afterbay.lakehouse import slices
from afterbay.schemas.clock import SystemClock
from afterbay.streams.snapshots import Manifest
from afterbay.trainers.first_snapshot import seal_first
from afterbay.trainers.generation import PromptSpec, SampledToken
from afterbay.trainers.home import Home, home_of
from afterbay.trainers.policy import LocalPolicy, save_policy
from tests.support.whole_lake import DAY_ONE, INFERENCES, REWARDS, WholeLake

POLICY = "bank-agent"
SNAPSHOT = "019c0000-0000-7000-8000-000000000001"


@dataclass
class AnsweredLake:
    """Answers by the policy in `parent`; `answer`, `reward`, then `plan` a slice of them."""

    home: Home
    whole: WholeLake
    policy: LocalPolicy
    parent: Path
    manifest: Manifest

    def answer(self, text: str, session: str, **values: Any) -> tuple[str, str | None]:
        """One answer of the policy; its id and the tool it names. `values` replace columns."""
        prompt = PromptSpec(ids=self.policy.encode(text).ids, seed=len(session) + len(text))
        tokens = said(self.policy, prompt)
        ids = tuple(token.token_id for token in tokens)
        columns: dict[str, Any] = {
            "session_id": session,
            "policy": POLICY,
            "snapshot_id": SNAPSHOT,
            "digest": self.digest,
            "tokenizer": self.policy.tokenizer_fingerprint,
            "tools": (),
            "prompt": text,
            "prompt_ids": prompt.ids,
            "response_ids": ids,
            "response_logprobs": tuple(token.logprob for token in tokens),
            "loss_mask": (1,) * len(ids),
            "trainable": True,
            "untrainable_reason": None,
            "segments": ({"start": 0, "snapshot_id": SNAPSHOT},),
            "sampling": sampling(),
            "completed_at": self.whole.now,
        }
        inference_id = self.whole.send(INFERENCES, **{**columns, **values})
        return inference_id, self.policy.tool_of(ids)

    def reward(self, inference_id: str, value: float, count: int = 1) -> None:
        """A reward for an answer; a higher count supersedes a lower one."""
        self.whole.send(
            REWARDS,
            inference_id=inference_id,
            reward=value,
            function_id=SourceMean().function_id,
            feedback_count=count,
            generation=1,
            cause="feedback",
        )

    @property
    def digest(self) -> str:
        """Of the parent's weights."""
        return self.manifest.digest

    def plan(self) -> slices.SliceSpec:
        """The slice of everything that is there."""
        self.whole.flush()
        self.whole.bucket()
        return slices.plan(
            self.home.lake,
            policy=POLICY,
            since=DAY_ONE - timedelta(days=1),
            until=self.whole.now + timedelta(seconds=1),
            function_id=SourceMean().function_id,
            edges_id=Edges().edges_id,
            max_lag=1,
            max_age=timedelta(days=1),
            seed=7,
        )


def answered_lake(root: Path, policy: LocalPolicy, bootstrap: str = "nowhere:1") -> AnsweredLake:
    """A home whose first snapshot is `policy`, published but to the tables alone."""
    home = home_of(root, {"AFTERBAY_BOOTSTRAP": bootstrap})
    folder = home.snapshot(SNAPSHOT)
    save_policy(folder, policy)
    manifest = seal_first(
        home,
        folder,
        policy=POLICY,
        tokenizer=policy.tokenizer_fingerprint,
        metrics={},
        clock=SystemClock(),
    )
    whole = WholeLake(home.lake)
    whole.send(
        "policy.snapshot.v2",
        policy=POLICY,
        action="published",
        snapshot_id=SNAPSHOT,
        parent=None,
        digest=manifest.digest,
        manifest=manifest.text,
        trained_on=None,
        split=None,
    )
    return AnsweredLake(home, whole, policy, folder, manifest)


def sampling(temperature: float = 1.0) -> dict[str, Any]:
    """The event's `sampling`."""
    return {
        "temperature": temperature,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "seed": None,
        "logprobs_mode": "processed",
    }


def said(policy: LocalPolicy, prompt: PromptSpec) -> Sequence[SampledToken]:
    """All tokens of one answer."""
    generation = policy.start([prompt])
    tokens: list[SampledToken] = []
    while not generation.done:
        tokens += generation.step()
    return tokens
