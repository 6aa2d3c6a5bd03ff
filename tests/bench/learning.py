"""Does the loop learn? The demo's conditions in virtual time, with the real policy and learner.

    python tests/bench/learning.py --messages train.csv --tools tools.json --heldout test.csv \
        --seeds 0 1 2 [--shuffle]

Messages arrive open loop; the demo's own judges give late and partly wrong opinions; rewards are
folded as the rewarder folds them; a training starts when enough new experience has come, reads what
is there, and its snapshot serves some seconds later. Leaves out: broker, tables, gate, canary.
With `--shuffle` opinions go to other inferences: the control, which must not gain.
Judged on the held-out file, which chooses nothing: the last candidate, promoted or not.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from afterbay.dsa.rewards import SourceMean
from afterbay.platform.demo.messages import Message
from afterbay.platform.demo.opinions import Judges, Opinion, Shuffler
from afterbay.trainers.estimators import Estimate, snips_estimate
from afterbay.trainers.evaluation import Score, score
from afterbay.trainers.imitation import ImitationSettings, learn
from afterbay.trainers.labelled import Labelled, read_messages, read_tools, shuffled
from afterbay.trainers.learner import (
    LearnerSettings,
    Rewarded,
    distance,
    improve,
    log_ratios,
)
from afterbay.trainers.policy import LocalPolicy, PromptSpec, Sample, SamplingParams
from afterbay.trainers.runtime import TorchSettings, set_up_torch
from afterbay.trainers.weights import ratio_of, sequence_log_ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What the loop around the learner is like."""

    messages: int = 6_000
    rate: float = 25.0
    """Messages a second."""
    labels: int = 200
    train_every: int = 400
    """New rewards that start a training."""
    pipeline_s: float = 3.0
    """From an opinion being posted until the bucketer has written its experience."""
    slice_s: float = 3.0
    """From the trigger until the slice is read."""
    serve_s: float = 8.0
    """From the slice until the nodes serve the snapshot."""
    rest_s: float = 10.0
    """From serving until the next training may start (the canary's time)."""
    held_out: float = 0.1
    """Share of rows that no training sees."""
    gate: bool = True
    """Whether a candidate must pass the off-policy gate to serve; the control has none."""


@dataclass(slots=True)
class Answer:
    """One answered message and what was said of it."""

    at: float
    sample: Sample
    behaviour: list[float]
    held_out: bool
    opinions: list[tuple[float, str, float]] = field(default_factory=list)
    """(when its reward is in the tables, source, score)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Figures of one simulated run."""

    seed: int
    shuffled: bool
    trainings: int
    promoted: int
    updates: int
    before: Score
    after: Score
    kl_per_token_nats: float
    """The last candidate from its behaviour policies."""
    ess_share: float
    """The same slice: effective sample size by its rows."""
    mean_reward: float
    """Of the last slice."""
    seconds: float
    train_seconds: float

    @property
    def gain(self) -> float:
        """Sampled reward on the held-out file, after minus before."""
        return self.after.sampled_reward - self.before.sampled_reward

    def line(self) -> str:
        """The figures that matter, for a person."""
        before, after = self.before, self.after
        return (
            f"seed {self.seed}{' shuffled' if self.shuffled else ''}: greedy"
            f" {before.greedy_accuracy:.3f} -> {after.greedy_accuracy:.3f}, sampled"
            f" {before.sampled_reward:.3f} -> {after.sampled_reward:.3f}, gain {self.gain:+.4f};"
            f" {self.promoted} of {self.trainings} trainings served, {self.updates} updates,"
            f" kl {self.kl_per_token_nats:.3f} nats/token, ess {self.ess_share:.2f};"
            f" {self.seconds:.0f} s, {self.train_seconds:.1f} s of it training"
        )


class Play:
    """One simulated run."""

    def __init__(
        self,
        labels: Sequence[Labelled],
        played: Sequence[Labelled],
        seed: int,
        shuffle: bool,
        conditions: Conditions,
    ) -> None:
        self._played = played
        self._conditions = conditions
        as_message = [Message(text=m.text, category="", tool=m.tool) for m in played]
        known = [Message(text=m.text, category="", tool=m.tool) for m in labels]
        self._judges = Judges(as_message, known, seed)
        self._shuffler = Shuffler(seed) if shuffle else None
        self._chance = np.random.default_rng(seed)
        self._function = SourceMean()
        self.answers: list[Answer] = []

    def serve(self, policy: LocalPolicy, until: float) -> None:
        """Answer everything that arrives before `until` with `policy`."""
        first = len(self.answers)
        last = min(self._conditions.messages, int(np.ceil(until * self._conditions.rate)))
        while first < last:
            self._answer(policy, range(first, min(last, first + 256)))
            first = len(self.answers)

    def _answer(self, policy: LocalPolicy, numbers: range) -> None:
        texts = [self._played[n].text for n in numbers]
        prompts = [policy.encode(policy.render([{"role": "user", "content": t}])) for t in texts]
        seeds = self._chance.integers(1 << 62, size=len(texts)).tolist()
        generation = policy.start(
            [PromptSpec(ids=p.ids, seed=s) for p, s in zip(prompts, seeds, strict=True)]
        )
        ids: list[list[int]] = [[] for _ in texts]
        logprobs: list[list[float]] = [[] for _ in texts]
        while not generation.done:
            for token in generation.step():
                ids[token.row].append(token.token_id)
                logprobs[token.row].append(token.logprob)
        for row, number in enumerate(numbers):
            sample = Sample(prompts[row].ids, tuple(ids[row]), (), SamplingParams())
            at = number / self._conditions.rate
            held_out = self._chance.random() < self._conditions.held_out
            answer = Answer(at, sample, logprobs[row], held_out)
            self.answers.append(answer)
            for opinion in self._judges.opinions(number, 0, policy.tool_of(ids[row])):
                self._hear(answer, opinion)

    def _hear(self, answer: Answer, opinion: Opinion) -> None:
        if self._shuffler is not None:
            opinion = self._shuffler.swap(opinion)
        if opinion.score is not None:
            when = answer.at + opinion.delay_s + self._conditions.pipeline_s
            answer.opinions.append((when, opinion.source, opinion.score))

    def rewards(self, now: float) -> list[tuple[int, float, float]]:
        """(answer, reward, when that reward came) of everything rewarded by `now`."""
        groups, sources, scores, newest = [], [], [], []
        rows: list[int] = []
        for number, answer in enumerate(self.answers):
            heard = [o for o in answer.opinions if o[0] <= now]
            if not heard:
                continue
            newest.append(max(o[0] for o in heard))
            groups += [len(rows)] * len(heard)
            sources += [self._function.sources.index(o[1]) for o in heard]
            scores += [o[2] for o in heard]
            rows.append(number)
        folded = self._function.fold(np.array(groups), np.array(sources), np.array(scores))
        return list(zip(rows, folded.rewards.tolist(), newest, strict=True))

    def when_new(self, since: float, count: int) -> float | None:
        """When `count` rewards have come after `since`; None if they never do."""
        times = sorted(o[0] for a in self.answers for o in a.opinions if o[0] > since)
        return times[count - 1] if len(times) >= count else None


@dataclass(frozen=True, slots=True)
class Slice:
    """What a training reads."""

    trained: Rewarded
    held_out: Rewarded
    new: int
    """Rewards in `trained` that its parent has not seen."""


def slice_at(policy: LocalPolicy, play: Play, now: float, since: float) -> Slice:
    """What a training at `now` reads, whose parent was trained at `since`."""
    rows = play.rewards(now)
    trained = [row for row in rows if not play.answers[row[0]].held_out]
    held_out = [row for row in rows if play.answers[row[0]].held_out]
    new = sum(came > since for _, _, came in trained)
    return Slice(_rewarded(policy, play, trained), _rewarded(policy, play, held_out), new)


def _rewarded(
    policy: LocalPolicy, play: Play, rows: Sequence[tuple[int, float, float]]
) -> Rewarded:
    answers = [play.answers[number] for number, _, _ in rows]
    batch = policy.prepare([answer.sample for answer in answers])
    behaviour = torch.zeros(batch.response.shape)
    for row, answer in enumerate(answers):
        behaviour[row, : len(answer.behaviour)] = torch.tensor(answer.behaviour)
    return Rewarded(batch, behaviour, batch.valid, torch.tensor([reward for _, reward, _ in rows]))


def estimate(policy: LocalPolicy, rows: Rewarded) -> Estimate:
    """What `policy` would have earned on `rows`."""
    whole = sequence_log_ratio(log_ratios(policy, rows), rows.mask).double()
    return snips_estimate(rows.rewards.double().numpy(), ratio_of(whole).numpy())


@dataclass(slots=True)
class Arm:
    """A policy, and where its lineage stands."""

    policy: LocalPolicy
    updates: int
    trained_at: float

    def copy(self) -> Arm:
        """An arm with weights and progress of its own."""
        network = type(self.policy.network)(self.policy.config.shape)
        network.load_state_dict(self.policy.network.state_dict())
        policy = LocalPolicy(self.policy.config, self.policy.tokenizer, network.eval())
        return Arm(policy, self.updates, self.trained_at)


def simulate(
    files: tuple[Path, Path, Path],
    seed: int,
    *,
    shuffle: bool,
    conditions: Conditions,
    imitation: ImitationSettings,
    learner: LearnerSettings,
    trace: bool = False,
) -> Result:
    """One run of the demo's conditions."""
    began = time.perf_counter()
    tools = read_tools(files[1])
    messages = shuffled(read_messages(files[0], tools), seed)
    held_out = read_messages(files[2], tools)
    labels, played = messages[: conditions.labels], messages[conditions.labels :]
    texts = [m.text for m in messages]
    current = Arm(learn(labels, texts, tuple(tools), seed, imitation), 0, 0.0)
    before = score(current.policy, held_out)
    play = Play(labels, played, seed, shuffle, conditions)
    end = conditions.messages / conditions.rate
    now, asked, trainings, promoted, spent = 0.0, 0.0, 0, 0, 0.0
    candidate, apart, mean_reward = current, None, 0.0
    while now < end:
        now += 1.0
        play.serve(current.policy, now)
        due = play.when_new(asked, conditions.train_every)
        if due is None or due > now:
            continue
        asked = now = now + conditions.slice_s
        play.serve(current.policy, now)
        candidate = current.copy()
        rows = slice_at(candidate.policy, play, now, current.trained_at)
        candidate.trained_at = now
        start = time.perf_counter()
        gain = improve(
            candidate.policy,
            rows.trained,
            new=rows.new,
            seed=seed + trainings,
            settings=learner,
            before=candidate.updates,
        )
        candidate.updates += gain.updates
        spent += time.perf_counter() - start
        apart = distance(candidate.policy, rows.trained)
        mean_reward = float(rows.trained.rewards.mean())
        ours, theirs = (estimate(arm.policy, rows.held_out) for arm in (candidate, current))
        passed = min(ours.ess, theirs.ess) >= 50 and ours.snips - theirs.snips >= -0.02
        trainings += 1
        if trace:
            print(
                f"  t={now:5.0f} new {rows.new:4d} updates {gain.updates:3d} reward"
                f" {mean_reward:.3f} w {gain.weight_mean:.3f} kl"
                f" {apart.kl_per_token_nats:.3f} ess {apart.ess / apart.responses:.3f} held out"
                f" {ours.n} ess {ours.ess:.0f} {theirs.ess:.0f} snips {ours.snips:.3f}"
                f" {theirs.snips:.3f} {'pass' if passed else 'STOP'} test"
                f" {score(candidate.policy, held_out).sampled_reward:.4f}",
                flush=True,
            )
        now += conditions.serve_s
        play.serve(current.policy, now)
        if passed or not conditions.gate or shuffle:
            current, promoted = candidate, promoted + 1
            now += conditions.rest_s
            play.serve(current.policy, now)
    last = candidate if shuffle else current
    return Result(
        seed=seed,
        shuffled=shuffle,
        trainings=trainings,
        promoted=promoted,
        updates=last.updates,
        before=before,
        after=score(last.policy, held_out),
        kl_per_token_nats=apart.kl_per_token_nats if apart else 0.0,
        ess_share=apart.ess / apart.responses if apart else 0.0,
        mean_reward=mean_reward,
        seconds=time.perf_counter() - began,
        train_seconds=spent,
    )


def main() -> None:
    """Run the seeds asked for, print a line each, and write all figures if asked."""
    options = _parser().parse_args()
    set_up_torch(TorchSettings())
    results = []
    for seed in options.seeds:
        result = simulate(
            (options.messages, options.tools, options.heldout),
            seed,
            shuffle=options.shuffle,
            conditions=replace(Conditions(), **_chosen(options.set, "conditions")),
            imitation=replace(ImitationSettings(), **_chosen(options.set, "imitation")),
            learner=replace(LearnerSettings(), **_chosen(options.set, "learner")),
            trace=options.trace,
        )
        results.append(result)
        print(result.line(), flush=True)
    gains = [result.gain for result in results]
    print(f"gain: least {min(gains):+.4f}, mean {sum(gains) / len(gains):+.4f}, n {len(gains)}")
    if options.out is not None:
        figures = [asdict(result) | {"gain": result.gain} for result in results]
        options.out.write_text(json.dumps(figures, indent=1), encoding="utf-8")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    for name in ("--messages", "--tools", "--heldout"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--shuffle", action="store_true", help="the control")
    parser.add_argument("--set", nargs="*", default=[], help="settings, as learner.margin=0.1")
    parser.add_argument("--trace", action="store_true", help="a line for each training")
    parser.add_argument("--out", type=Path, help="file for the figures, as JSON")
    return parser


def _chosen(settings: Sequence[str], group: str) -> dict[str, Any]:
    """The settings of one group, as keyword arguments."""
    named = [one.partition("=") for one in settings if one.startswith(f"{group}.")]
    return {name.partition(".")[2]: json.loads(value) for name, _, value in named}


if __name__ == "__main__":
    main()
