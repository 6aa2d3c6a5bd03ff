"""What serving samples and what training weighs are one distribution, bit for bit."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch

from afterbay.schemas.errors import BadSettings, BadState
from afterbay.trainers.policy import (
    LocalPolicy,
    PromptSpec,
    Sample,
    SampledToken,
    load_policy,
    save_policy,
)

WORDS = ("where", "is", "my", "card", "stolen", "why", "a", "fee", "我", "转账", "top up", "with")


def some_prompts(policy: LocalPolicy, count: int) -> list[PromptSpec]:
    dice = random.Random(5)  # noqa: S311  # repeatable, not a secret
    return [
        PromptSpec(
            ids=policy.encode(" ".join(dice.choices(WORDS, k=dice.randrange(12)))).ids,
            tools=dice.choice([(), ("fees", "top_up"), ("card_block", "card_delivery", "fees")]),
            temperature=dice.choice([1.0, 0.7, 1.5]),
            top_p=dice.choice([1.0, 0.9]),
            top_k=dice.choice([0, 2]),
            min_p=dice.choice([0.0, 0.05]),
            seed=number,
        )
        for number in range(count)
    ]


def answers(policy: LocalPolicy, prompts: list[PromptSpec]) -> list[list[SampledToken]]:
    generation = policy.start(prompts)
    found: list[list[SampledToken]] = [[] for _ in prompts]
    while not generation.done:
        for token in generation.step():
            found[token.row].append(token)
    return found


def sample_of(prompt: PromptSpec, tokens: list[SampledToken]) -> Sample:
    ids = tuple(token.token_id for token in tokens)
    return Sample(prompt.ids, ids, prompt.tools, prompt.sampling)


def test_a_policy_against_its_own_answers_gives_ratio_one_exactly(policy: LocalPolicy) -> None:
    prompts = some_prompts(policy, 150)
    said = answers(policy, prompts)
    batch = policy.prepare([sample_of(p, a) for p, a in zip(prompts, said, strict=True)])
    with torch.no_grad():
        log_probs = policy.log_probs(batch)
    for row, tokens in enumerate(said):
        logged = [token.logprob for token in tokens]
        assert log_probs[row, : len(logged)].tolist() == logged
    assert bool((log_probs[~batch.valid] == 0).all())


def test_an_answer_does_not_depend_on_who_is_answered_with_it(policy: LocalPolicy) -> None:
    prompts = some_prompts(policy, 70)
    together = answers(policy, prompts)
    alone = [answers(policy, [prompt])[0] for prompt in prompts]
    for one, other in zip(together, alone, strict=True):
        assert [(t.token_id, t.logprob) for t in one] == [(t.token_id, t.logprob) for t in other]


def test_log_probs_of_a_row_do_not_depend_on_its_batch(policy: LocalPolicy) -> None:
    prompts = some_prompts(policy, 90)
    samples = [sample_of(p, a) for p, a in zip(prompts, answers(policy, prompts), strict=True)]
    batch = policy.prepare(samples)
    with torch.no_grad():
        whole = policy.log_probs(batch)
        for rows in ([4], [89, 0, 33], list(range(31)), list(range(20, 86))):
            assert torch.equal(policy.log_probs(batch.take(rows)), whole[rows])


def test_an_answer_is_a_tool_that_was_offered(policy: LocalPolicy) -> None:
    prompts = some_prompts(policy, 60)
    for prompt, tokens in zip(prompts, answers(policy, prompts), strict=True):
        tool = policy.tool_of([token.token_id for token in tokens])
        assert tool in (prompt.tools or policy.config.tools)
        assert "".join(token.text for token in tokens) == tool
        assert [token.finished for token in tokens] == [False] * (len(tokens) - 1) + [True]
        assert tokens[-1].end == len(tool or "")


def test_a_seed_repeats_an_answer_and_no_seed_draws_a_new_one(policy: LocalPolicy) -> None:
    ids = policy.encode("where is my card").ids
    seeded = PromptSpec(ids=ids, seed=9, temperature=2.0)
    assert answers(policy, [seeded]) == answers(policy, [seeded])
    free = answers(policy, [PromptSpec(ids=ids, temperature=2.0)] * 40)
    assert len({tuple(t.token_id for t in tokens) for tokens in free}) > 1


def test_a_snapshot_folder_gives_the_same_policy_back(policy: LocalPolicy, tmp_path: Path) -> None:
    save_policy(tmp_path / "s", policy)
    again = load_policy(tmp_path / "s")
    prompts = some_prompts(policy, 20)
    assert answers(again, prompts) == answers(policy, prompts)
    assert again.tokenizer_fingerprint == policy.tokenizer_fingerprint
    save_policy(tmp_path / "t", again)
    for name in ("policy.safetensors", "tokenizer.json", "config.json"):
        assert (tmp_path / "s" / name).read_bytes() == (tmp_path / "t" / name).read_bytes()


@pytest.mark.parametrize("name", ["policy.safetensors", "tokenizer.json", "config.json"])
def test_a_folder_that_is_not_whole_is_refused(
    policy: LocalPolicy, tmp_path: Path, name: str
) -> None:
    save_policy(tmp_path, policy)
    whole = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BadState):
        load_policy(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(BadState):
        load_policy(tmp_path)


def test_weights_of_another_shape_are_refused(policy: LocalPolicy, tmp_path: Path) -> None:
    save_policy(tmp_path, policy)
    config = tmp_path / "config.json"
    config.write_text(config.read_text().replace('"width": 32', '"width": 64'))
    with pytest.raises(BadState, match="do not fit"):
        load_policy(tmp_path)


def test_a_chat_is_rendered_for_the_policy_to_read(policy: LocalPolicy) -> None:
    chat: list[dict[str, Any]] = [
        {"role": "system", "content": "You are a bank."},
        {"role": "user", "content": "Hi"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"function": {"name": "fees", "arguments": "{}"}}],
        },
        {"role": "user", "content": [{"type": "text", "text": "Where is"}, {"text": "my card"}]},
    ]
    assert policy.render(chat) == "Hi\n<assistant> fees\nWhere is my card"
    assert policy.render([{"role": "user", "content": "x" * 9_000}]) == "x" * 4_000
    assert policy.render([]) == ""


def test_a_masked_prompt_token_reads_as_the_mask(policy: LocalPolicy) -> None:
    ids = policy.encode("where is my card").ids
    prompts = [PromptSpec(ids=ids, seed=1), PromptSpec(ids=(-1, *ids[1:]), seed=1)]
    whole, masked = answers(policy, prompts)
    assert whole[0].logprob != masked[0].logprob


def test_nothing_after_a_masked_response_token_is_valid(policy: LocalPolicy) -> None:
    spelled = policy.spell("card_block")
    sample = Sample((1, 2), (-1, *spelled[1:]), (), PromptSpec(ids=()).sampling)
    batch = policy.prepare([sample])
    assert not bool(batch.valid.any())
    assert policy.log_probs(batch).tolist() == [[0.0] * len(spelled)]


def test_a_token_that_sampling_would_not_leave_any_mass_has_none(policy: LocalPolicy) -> None:
    greedy = PromptSpec(ids=(3,), temperature=0)
    best = policy.tool_of([t.token_id for t in answers(policy, [greedy])[0]])
    other = next(tool for tool in policy.config.tools if tool != best)
    batch = policy.prepare([Sample((3,), policy.spell(other), (), greedy.sampling)])
    with torch.no_grad():
        assert float(policy.log_probs(batch).sum()) == -torch.inf


def test_whether_an_answer_names_an_offered_tool(policy: LocalPolicy) -> None:
    assert policy.accepts((), policy.spell("fees"))
    assert not policy.accepts(("top_up",), policy.spell("fees"))
    assert not policy.accepts((), policy.spell("fees")[:-1])
    assert not policy.accepts(("龘",), policy.spell("fees"))


def test_tools_that_cannot_be_spelled_are_refused(policy: LocalPolicy) -> None:
    with pytest.raises(BadSettings, match="rename"):
        policy.start([PromptSpec(ids=(1,), tools=("龘",))])
