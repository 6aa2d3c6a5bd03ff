"""How good a policy is where the right answer is known.

In:   a policy and labelled messages
Out:  `Score`: greedy accuracy, and the reward that sampling would earn
Never: samples; the expected reward is computed from the policy's own distribution
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from afterbay.trainers.generation import PromptSpec
from afterbay.trainers.imitation import label_batch
from afterbay.trainers.labelled import Labelled
from afterbay.trainers.policy import LocalPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """How good a policy is. Made by `score`, printed by `afterbay policy evaluate`."""

    messages: int
    greedy_accuracy: float
    """Share of messages whose most likely answer, token by token, is the right tool."""
    sampled_reward: float
    """Mean probability of the right tool at temperature 1."""


def score(policy: LocalPolicy, labelled: Sequence[Labelled], chunk: int = 512) -> Score:
    """Evaluate `policy` on `labelled`; 1 for the right tool, 0 for any other."""
    right, mass = 0, 0.0
    for start in range(0, len(labelled), chunk):
        part = labelled[start : start + chunk]
        with torch.inference_mode():
            log_probs = policy.log_probs(label_batch(policy, part)).sum(dim=1)
        mass += float(log_probs.double().exp().sum())
        answers = greedy(policy, [label.text for label in part])
        right += sum(answer == label.tool for answer, label in zip(answers, part, strict=True))
    count = max(1, len(labelled))
    return Score(messages=len(labelled), greedy_accuracy=right / count, sampled_reward=mass / count)


def greedy(policy: LocalPolicy, texts: Sequence[str]) -> list[str | None]:
    """The most likely answer to each message, token by token."""
    prompts = [policy.render([{"role": "user", "content": text}]) for text in texts]
    generation = policy.start(
        [PromptSpec(ids=policy.encode(p).ids, temperature=0) for p in prompts]
    )
    answers: list[list[int]] = [[] for _ in texts]
    while not generation.done:
        for token in generation.step():
            answers[token.row].append(token.token_id)
    return [policy.tool_of(answer) for answer in answers]
