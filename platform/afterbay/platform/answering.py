"""The node's work without its sockets: requests in, tokens out, several answers at once.

In:   `Generate` messages with who asked; the loaded snapshot of a digest
Out:  `NodeToken`s to send: one per step for a stream, one with everything otherwise
Refuses: a digest that is not loaded (`digest`), more requests than it may hold (`busy`), tools the
      policy cannot spell (`tools`), and what broke (`failed`); each as a `NodeToken`
Never: lets one broken request cost the others their answers
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from msgspec import structs

from afterbay.platform.bus import Began, Ended, Generate, NodeToken, Token
from afterbay.schemas.clock import Clock, micros
from afterbay.schemas.errors import BadSettings
from afterbay.trainers.policy import Generation, Policy, PromptSpec, SampledToken

log = logging.getLogger("afterbay.node")

MAX_BUSY = 256
"""Requests a node holds at once; more are refused, so that none waits long."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A verified snapshot in memory. Made by `holding`, read here."""

    policy_name: str
    snapshot_id: str
    digest: str
    """SHA-256 (hex) of the weights that were loaded."""
    policy: Policy


Sent = tuple[bytes, NodeToken]
"""Who asked, and what it is told."""


@dataclass(slots=True)
class _Row:
    """One answer under way."""

    sender: bytes
    ask: Generate
    began: Began
    tokens: list[Token] = field(default_factory=list)
    told: int = 0
    """Tokens that were sent already."""
    first_token_us: int | None = None
    over: bool = False


@dataclass(frozen=True, slots=True)
class _Run:
    """Answers of one snapshot that advance together."""

    loaded: Loaded
    generation: Generation
    rows: tuple[_Row, ...]


class Answers:
    """All answers of a node. One thread."""

    def __init__(self, node_id: str, loaded: Callable[[str], Loaded | None], clock: Clock) -> None:
        self._node_id = node_id
        self._loaded = loaded
        self._clock = clock
        self._waiting: list[tuple[bytes, Generate]] = []
        self._runs: list[_Run] = []

    @property
    def busy(self) -> int:
        """Requests waiting or being answered."""
        under_way = sum(not row.over for run in self._runs for row in run.rows)
        return len(self._waiting) + under_way

    def take(self, sender: bytes, ask: Generate) -> NodeToken | None:
        """Accept a request, or say why not."""
        if self.busy >= MAX_BUSY:
            return refusal(ask, "busy")
        if self._loaded(ask.digest) is None:
            return refusal(ask, "digest")
        self._waiting.append((sender, ask))
        return None

    def step(self) -> list[Sent]:
        """One more token for every answer under way; what is to be sent now."""
        sent = list(self._begin())
        for run in self._runs:
            sent += self._advance(run)
        self._runs = [run for run in self._runs if not all(row.over for row in run.rows)]
        return sent

    def _begin(self) -> Iterator[Sent]:
        """Start what waits, together by snapshot."""
        waiting, self._waiting = self._waiting, []
        for digest in dict.fromkeys(ask.digest for _, ask in waiting):
            asked = [(sender, ask) for sender, ask in waiting if ask.digest == digest]
            loaded = self._loaded(digest)
            if loaded is None:
                yield from ((sender, refusal(ask, "digest")) for sender, ask in asked)
            else:
                yield from self._start(loaded, asked)

    def _start(self, loaded: Loaded, asked: Sequence[tuple[bytes, Generate]]) -> Iterator[Sent]:
        rows, specs = zip(*(self._read(loaded, *one) for one in asked), strict=True)
        try:
            self._runs.append(_Run(loaded, loaded.policy.start(specs), rows))
        except BadSettings:
            if len(asked) == 1:
                yield asked[0][0], refusal(asked[0][1], "tools")
                return
            for one in asked:
                yield from self._start(loaded, [one])

    def _read(self, loaded: Loaded, sender: bytes, ask: Generate) -> tuple[_Row, PromptSpec]:
        prompt = loaded.policy.render(ask.messages)
        encoded = loaded.policy.encode(prompt)
        began = Began(
            node_id=self._node_id,
            snapshot_id=loaded.snapshot_id,
            digest=loaded.digest,
            tokenizer=loaded.policy.tokenizer_fingerprint,
            prompt=prompt,
            prompt_ids=tuple(encoded.ids),
            prompt_ends=tuple(encoded.ends),
            started_us=micros(self._clock.now()),
            first_token_us=None,
        )
        sampling = ask.sampling
        spec = PromptSpec(
            ids=tuple(encoded.ids),
            tools=ask.tools,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            min_p=sampling.min_p,
            seed=sampling.seed,
        )
        return _Row(sender, ask, began), spec

    def _advance(self, run: _Run) -> list[Sent]:
        try:
            sampled = run.generation.step()
        except Exception as error:  # whatever a policy raises, the other runs go on
            log.error("snapshot %s: %s", run.loaded.snapshot_id, type(error).__name__)
            return [self._broken(row) for row in run.rows if not row.over]
        return [sent for token in sampled for sent in self._told(run, token)]

    def _broken(self, row: _Row) -> Sent:
        row.over = True
        return row.sender, refusal(row.ask, "failed")

    def _told(self, run: _Run, sampled: SampledToken) -> Iterator[Sent]:
        row = run.rows[sampled.row]
        if row.over:  # cut by max_tokens; its neighbours are still being answered
            return
        now = micros(self._clock.now())
        row.first_token_us = row.first_token_us or now
        row.tokens.append(Token(sampled.token_id, sampled.logprob, sampled.text, sampled.end))
        limit = row.ask.max_tokens
        row.over = sampled.finished or (limit is not None and len(row.tokens) >= limit)
        if row.over or row.ask.stream:
            ended = self._ended(run.loaded.policy, row, now) if row.over else None
            yield row.sender, _message(row, ended)
            row.told = len(row.tokens)

    def _ended(self, policy: Policy, row: _Row, now: int) -> Ended:
        tool = policy.tool_of([token.id for token in row.tokens])
        reason = "length" if tool is None else "tool_calls"
        return Ended(finish_reason=reason, tool=tool, completed_us=now)


def refusal(ask: Generate, why: str) -> NodeToken:
    """The answer that is none."""
    return NodeToken(request_id=ask.request_id, attempt=ask.attempt, refused=why)


def _message(row: _Row, ended: Ended | None) -> NodeToken:
    """What the asker has not been told yet."""
    began = structs.replace(row.began, first_token_us=row.first_token_us)
    return NodeToken(
        request_id=row.ask.request_id,
        attempt=row.ask.attempt,
        began=began if row.told == 0 else None,
        tokens=tuple(row.tokens[row.told :]),
        ended=ended,
    )
