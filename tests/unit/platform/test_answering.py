"""The node's answers with a small hand-written policy: batches, streams, refusals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from afterbay.platform.answering import MAX_BUSY, Answers, Loaded
from afterbay.platform.bus import Generate, NodeToken
from afterbay.schemas.errors import BadSettings
from afterbay.schemas.events import Sampling
from afterbay.trainers.generation import PromptSpec, SampledToken
from afterbay.trainers.policy import Policy
from afterbay.trainers.tokenizer import Encoded
from tests.support.manual_clock import ManualClock

PLAIN = Sampling(temperature=1, top_p=1, top_k=0, min_p=0, logprobs_mode="processed")


@dataclass
class Spelled:
    """Answers every prompt with its first tool, a letter a step."""

    words: list[str]
    at: int = 0
    broken: bool = False

    @property
    def done(self) -> bool:
        return self.at > max(len(word) for word in self.words)

    def step(self) -> list[SampledToken]:
        if self.broken:
            raise RuntimeError("13812345678")
        self.at += 1
        return [
            self._token(row, word) for row, word in enumerate(self.words) if self.at <= len(word)
        ]

    def _token(self, row: int, word: str) -> SampledToken:
        letter = word[self.at - 1]
        return SampledToken(row, ord(letter), -0.5, letter, self.at, self.at == len(word))


@dataclass
class Speller:
    """A policy whose vocabulary is letters; it cannot spell tools with digits."""

    tokenizer_fingerprint: str = "letters"
    max_response_tokens: int = 64
    broken: bool = False
    started: list[int] = field(default_factory=list)

    def render(self, messages: Sequence[Mapping[str, Any]]) -> str:
        return " ".join(str(message["content"]) for message in messages)

    def encode(self, text: str) -> Encoded:
        return Encoded(tuple(map(ord, text)), tuple(range(1, len(text) + 1)))

    def start(self, prompts: Sequence[PromptSpec]) -> Spelled:
        if any(not tool.isalpha() for prompt in prompts for tool in prompt.tools):
            raise BadSettings("a tool that cannot be spelled")
        self.started.append(len(prompts))
        return Spelled([prompt.tools[0] for prompt in prompts], broken=self.broken)

    def tool_of(self, response_ids: Sequence[int]) -> str | None:
        text = "".join(map(chr, response_ids))
        return text if text in {"refund", "pin"} else None


def answers_of(policy: Speller) -> Answers:
    loaded = Loaded("bank-agent", "s1", "d1", cast(Policy, policy))
    return Answers("node-1", {"d1": loaded}.get, ManualClock())


def ask(number: int = 0, **fields: Any) -> Generate:
    plain: dict[str, Any] = {
        "request_id": f"r{number}",
        "attempt": 1,
        "digest": "d1",
        "messages": ({"role": "user", "content": "hello"},),
        "tools": ("refund",),
        "sampling": PLAIN,
    }
    return Generate(**(plain | fields))


def until_idle(answers: Answers) -> list[NodeToken]:
    told: list[NodeToken] = []
    while answers.busy:
        told += [token for _, token in answers.step()]
    return told


def test_an_answer_comes_whole_with_everything_the_event_needs() -> None:
    answers = answers_of(Speller())
    assert answers.take(b"g", ask()) is None
    (told,) = until_idle(answers)
    assert told.began is not None
    assert (told.began.prompt, told.began.prompt_ends[-1]) == ("hello", 5)
    assert "".join(token.text for token in told.tokens) == "refund"
    assert told.ended is not None
    assert (told.ended.tool, told.ended.finish_reason) == ("refund", "tool_calls")
    assert told.began.started_us <= (told.began.first_token_us or 0) <= told.ended.completed_us


def test_a_stream_tells_each_step_once_and_begins_once() -> None:
    answers = answers_of(Speller())
    answers.take(b"g", ask(stream=True))
    told = until_idle(answers)
    assert [len(message.tokens) for message in told] == [1] * len("refund")
    assert [message.began is not None for message in told] == [True] + [False] * 5
    assert [message.ended is not None for message in told] == [False] * 5 + [True]


def test_requests_that_wait_are_answered_together() -> None:
    policy = Speller()
    answers = answers_of(policy)
    for number in range(5):
        answers.take(b"g", ask(number, tools=("refund",) if number % 2 else ("pin",)))
    assert {message.request_id for message in until_idle(answers)} == {f"r{n}" for n in range(5)}
    assert policy.started == [5]


def test_an_answer_is_cut_at_its_limit_while_its_neighbours_go_on() -> None:
    answers = answers_of(Speller())
    answers.take(b"g", ask(1, max_tokens=2))
    answers.take(b"g", ask(2))
    told = {message.request_id: message for message in until_idle(answers)}
    cut, whole = told["r1"].ended, told["r2"].ended
    assert cut is not None
    assert (len(told["r1"].tokens), cut.finish_reason, cut.tool) == (2, "length", None)
    assert whole is not None
    assert whole.tool == "refund"


def test_weights_that_are_not_loaded_are_refused() -> None:
    refused = answers_of(Speller()).take(b"g", ask(digest="other"))
    assert refused is not None
    assert refused.refused == "digest"


def test_more_than_a_node_may_hold_is_refused() -> None:
    answers = answers_of(Speller())
    outcomes = [answers.take(b"g", ask(number)) for number in range(MAX_BUSY + 1)]
    assert [o.refused for o in outcomes if o is not None] == ["busy"]


def test_a_tool_that_cannot_be_spelled_costs_only_its_own_request() -> None:
    answers = answers_of(Speller())
    answers.take(b"g", ask(1, tools=("pay2",)))
    answers.take(b"g", ask(2))
    told = {message.request_id: message for message in until_idle(answers)}
    assert told["r1"].refused == "tools"
    assert told["r2"].ended is not None


def test_a_policy_that_breaks_is_refused_and_its_words_stay_out_of_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    answers = answers_of(Speller(broken=True))
    answers.take(b"g", ask())
    (told,) = until_idle(answers)
    assert told.refused == "failed"
    assert "RuntimeError" in caplog.text
    assert "13812345678" not in caplog.text
