"""Updates move the policy to what was rewarded, repeatably, and weigh what another policy said."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import torch

from afterbay.trainers.batch import Sample
from afterbay.trainers.learner import (
    LearnerSettings,
    Rewarded,
    distance,
    improve,
    log_ratios,
    updates_for,
)
from afterbay.trainers.policy import LocalPolicy
from afterbay.trainers.sampling import SamplingParams
from tests.unit.trainers.test_policy import answers, sample_of, some_prompts

SETTINGS = LearnerSettings(batch=16, window=200)


def own_answers(policy: LocalPolicy, count: int, liked: str) -> Rewarded:
    """What the policy says of itself, rewarded where it names `liked`."""
    prompts = [replace(prompt, tools=(), top_k=0, top_p=1.0, min_p=0.0, temperature=1.0)
               for prompt in some_prompts(policy, count)]  # fmt: skip
    said = answers(policy, prompts)
    batch = policy.prepare([sample_of(p, a) for p, a in zip(prompts, said, strict=True)])
    behaviour = torch.zeros(batch.response.shape)
    for row, tokens in enumerate(said):
        behaviour[row, : len(tokens)] = torch.tensor([token.logprob for token in tokens])
    names = [policy.tool_of([token.token_id for token in tokens]) for tokens in said]
    rewards = torch.tensor([float(name == liked) for name in names])
    return Rewarded(batch, behaviour, batch.valid, rewards)


def run(policy: LocalPolicy, rows: Rewarded, new: int = 320, seed: int = 1) -> None:
    improve(policy, rows, new=new, seed=seed, settings=SETTINGS)


def probability(policy: LocalPolicy, tool: str) -> float:
    ids = policy.encode("where is my card").ids
    batch = policy.prepare([Sample(ids, policy.spell(tool), (), SamplingParams())])
    with torch.no_grad():
        return float(policy.log_probs(batch).sum().exp())


def weights_of(policy: LocalPolicy) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in policy.network.state_dict().items()}


def test_what_was_rewarded_becomes_likelier(policy: LocalPolicy) -> None:
    before = probability(policy, "fees")
    run(policy, own_answers(policy, 200, "fees"))
    assert probability(policy, "fees") > before + 0.1


def test_the_same_rows_state_and_seed_give_the_same_bits(policy: LocalPolicy) -> None:
    rows, other = own_answers(policy, 100, "fees"), deepcopy(policy)
    torch.manual_seed(1)
    run(policy, rows)
    torch.manual_seed(2)  # nothing outside a run may reach into it
    run(other, rows)
    one, two = weights_of(policy), weights_of(other)
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_another_seed_gives_other_bits(policy: LocalPolicy) -> None:
    rows, other = own_answers(policy, 100, "fees"), deepcopy(policy)
    run(policy, rows, seed=1)
    run(other, rows, seed=2)
    assert not torch.equal(policy.network.head.tokens.weight, other.network.head.tokens.weight)


def test_updates_are_as_many_as_the_new_rewards_ask_for(policy: LocalPolicy) -> None:
    assert [updates_for(new, SETTINGS) for new in (0, 1, 16, 32, 400)] == [0, 1, 2, 4, 50]
    rows = own_answers(policy, 40, "fees")
    before = weights_of(policy)
    gain = improve(policy, rows, new=0, seed=1, settings=SETTINGS)
    assert gain.updates == 0
    after = weights_of(policy)
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_only_the_newest_rows_are_drawn(policy: LocalPolicy) -> None:
    rows, other = own_answers(policy, 100, "fees"), deepcopy(policy)
    spoiled = replace(rows, rewards=rows.rewards.clone())
    spoiled.rewards[:80] = 0.5
    narrow = replace(SETTINGS, window=20)
    for one, data in ((policy, rows), (other, spoiled)):
        improve(one, data, new=64, seed=3, settings=narrow)
    assert torch.equal(policy.network.head.tokens.weight, other.network.head.tokens.weight)


def test_a_policy_is_at_no_distance_from_its_own_answers(policy: LocalPolicy) -> None:
    rows = own_answers(policy, 60, "fees")
    assert bool((log_ratios(policy, rows) == 0).all())
    here = distance(policy, rows)
    assert (here.kl_per_token_nats, here.ess, here.responses) == (0.0, 60.0, 60)
    run(policy, rows)
    moved = distance(policy, rows)
    assert moved.kl_per_token_nats > 0
    assert moved.ess < 60


def test_tokens_outside_the_loss_mask_change_nothing(policy: LocalPolicy) -> None:
    rows, other = own_answers(policy, 60, "fees"), deepcopy(policy)
    hidden = Rewarded(rows.batch, rows.behaviour.clone(), rows.mask.clone(), rows.rewards)
    hidden.mask[:, 0] = False
    noisy = Rewarded(rows.batch, hidden.behaviour.clone(), hidden.mask, rows.rewards)
    noisy.behaviour[:, 0] = -50.0
    run(policy, hidden)
    run(other, noisy)
    one, two = weights_of(policy), weights_of(other)
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_an_absurd_behaviour_log_prob_keeps_every_weight_finite(policy: LocalPolicy) -> None:
    rows = own_answers(policy, 60, "fees")
    rows.behaviour[::7, 0] = -200.0
    run(policy, rows)
    assert all(bool(torch.isfinite(value).all()) for value in weights_of(policy).values())


def test_rows_that_sampling_leaves_no_mass_are_passed_over(policy: LocalPolicy) -> None:
    ids = policy.encode("where is my card").ids
    narrow = SamplingParams(top_k=1)
    samples = [Sample(ids, policy.spell(tool), (), narrow) for tool in policy.config.tools]
    batch = policy.prepare(samples)
    rows = Rewarded(batch, torch.zeros(batch.response.shape), batch.valid, torch.ones(len(samples)))
    run(policy, rows)
    assert all(bool(torch.isfinite(value).all()) for value in weights_of(policy).values())


def test_nothing_to_learn_from_changes_nothing(policy: LocalPolicy) -> None:
    rows = own_answers(policy, 5, "fees").take([])
    gain = improve(policy, rows, new=9, seed=1, settings=SETTINGS)
    assert gain.updates == 0
    assert distance(policy, rows).responses == 0
