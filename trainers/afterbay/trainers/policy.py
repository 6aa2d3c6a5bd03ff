"""The policy behind the agent: a protocol, and the small local one that learns in a demo's time.

In:   chat messages, prompts in tokens, batches of responses
Out:  sampled tokens with the log-probs of the very distribution they came from; log-probs
Refuses: snapshot folders that are not whole (BadState); tools it cannot spell (BadSettings)

`LocalPolicy` answers a message with the name of one tool, token by token, under a grammar of the
tools offered. An upstream engine would be another `Policy`.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from afterbay.schemas.errors import BadSettings, BadState
from afterbay.trainers.batch import Batch, Sample, join, prepare
from afterbay.trainers.generation import Generation, PromptSpec, SampledToken
from afterbay.trainers.grammar import grammar_of
from afterbay.trainers.network import Network, Shape
from afterbay.trainers.sampling import SamplingParams, log_distribution
from afterbay.trainers.tokenizer import MASK_ID, Encoded, Tokenizer

__all__ = [
    "MASK_ID",
    "Batch",
    "Encoded",
    "Generation",
    "LocalPolicy",
    "Policy",
    "PolicyConfig",
    "PromptSpec",
    "Sample",
    "SampledToken",
    "SamplingParams",
    "load_policy",
    "save_policy",
]

WEIGHTS_FILE = "policy.safetensors"
TOKENIZER_FILE = "tokenizer.json"
CONFIG_FILE = "config.json"
FORMAT = "afterbay.local/1"
MAX_PROMPT_CHARACTERS = 4_000


class Policy(Protocol):
    """What nodes and trainers ask of a policy."""

    @property
    def tokenizer_fingerprint(self) -> str:
        """Names the tokenizer; rows of another one are not trained on."""
        ...

    @property
    def max_response_tokens(self) -> int:
        """Most tokens a response can have, end token included."""
        ...

    def render(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """The prompt text that the policy sees for a chat."""
        ...

    def encode(self, text: str) -> Encoded:
        """Token ids of a prompt text and where each ends in it."""
        ...

    def start(self, prompts: Sequence[PromptSpec]) -> Generation:
        """Begin to answer the prompts; nothing is sampled yet."""
        ...

    def tool_of(self, response_ids: Sequence[int]) -> str | None:
        """The tool a whole response names; None if it is not whole or was masked."""
        ...

    def log_probs(self, batch: Batch) -> Tensor:
        """(B, T) log-probs of the response tokens under the distribution sampled from."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyConfig:
    """What a local policy is, apart from its weights. Content of config.json."""

    shape: Shape
    tools: tuple[str, ...]
    """Tools it chooses from when a request offers none."""
    max_response_tokens: int = 65
    """A tool name has at most 64 characters."""
    format: str = FORMAT


class LocalPolicy:
    """A small autoregressive token policy. Made by warm start, by training, or from a folder."""

    def __init__(
        self,
        config: PolicyConfig,
        tokenizer: Tokenizer,
        network: Network,
        entropy: Callable[[], int] = lambda: secrets.randbits(63),
    ) -> None:
        self.config = config
        self.tokenizer = tokenizer
        self.network = network
        self._entropy = entropy

    @property
    def tokenizer_fingerprint(self) -> str:
        """SHA-256 of tokenizer.json."""
        return self.tokenizer.fingerprint

    @property
    def max_response_tokens(self) -> int:
        """Most tokens a response can have, end token included."""
        return self.config.max_response_tokens

    def render(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """Text of the chat, one line a message, without system messages; its last part if long."""
        lines = [_line(message) for message in messages if message.get("role") not in _UNSEEN]
        return "\n".join(line for line in lines if line)[-MAX_PROMPT_CHARACTERS:]

    def encode(self, text: str) -> Encoded:
        """Token ids of a prompt text and where each ends in it."""
        return self.tokenizer.encode(text)

    def start(self, prompts: Sequence[PromptSpec]) -> Generation:
        """Begin to answer the prompts; BadSettings if one offers tools that cannot be spelled."""
        grammars = [
            grammar_of(self.tokenizer, p.tools or self.config.tools, self.max_response_tokens)
            for p in prompts
        ]
        seeds = [self._entropy() if p.seed is None else p.seed for p in prompts]
        return Generation(self.network, self.tokenizer, prompts, grammars, seeds)

    def spell(self, tool: str) -> tuple[int, ...]:
        """The whole response that names `tool`."""
        return (*self.tokenizer.encode_name(tool), self.tokenizer.end_id)

    def tool_of(self, response_ids: Sequence[int]) -> str | None:
        """The tool a whole response names; None if it is not whole or was masked."""
        if not response_ids or response_ids[-1] != self.tokenizer.end_id or MASK_ID in response_ids:
            return None
        return "".join(map(self.tokenizer.piece, response_ids))

    def accepts(self, tools: tuple[str, ...], response_ids: Sequence[int]) -> bool:
        """Whether `response_ids` is a whole answer that names one of `tools` (empty: its own)."""
        try:
            grammar = grammar_of(
                self.tokenizer, tools or self.config.tools, self.max_response_tokens
            )
        except BadSettings:
            return False
        return grammar.accepts(response_ids)

    def prepare(self, samples: Sequence[Sample]) -> Batch:
        """The samples as tensors, for `log_probs`."""
        return prepare(samples, self.tokenizer, self.config.tools, self.max_response_tokens)

    def log_probs(self, batch: Batch) -> Tensor:
        """(B, T) log-probs under the distribution sampled from; 0 where nothing was chosen.

        -inf where the row's sampling parameters leave this token no mass now.
        """
        rows, positions = (batch.node >= 0).nonzero(as_tuple=True)
        prompt = self.network.trunk.prompt(*join(batch.prompts))
        said = self.network.said(batch.response)
        logits = self.network.logits(prompt[rows], said[rows, positions], batch.choices.tokens)
        slots, allowed = batch.choices.gather(logits, batch.node[rows, positions])
        sampling = [batch.sampling[row] for row in rows.tolist()]
        distribution = log_distribution(slots, allowed, sampling)
        picked = distribution.gather(1, batch.slot[rows, positions].unsqueeze(1)).squeeze(1)
        out = picked.new_zeros(batch.response.shape)
        return out.index_put((rows, positions), picked)


_UNSEEN = frozenset({"system", "developer"})


def _line(message: Mapping[str, Any]) -> str:
    """One message as text; what a user says stands bare, so that a single message is itself."""
    content = message.get("content") or ""
    if not isinstance(content, str):
        content = " ".join(str(part.get("text", "")) for part in content)
    called = [str(call["function"]["name"]) for call in message.get("tool_calls") or ()]
    role = message.get("role")
    said = " ".join([content, *called]).strip()
    return said if role == "user" or not said else f"<{role}> {said}"


def save_policy(folder: Path, policy: LocalPolicy) -> None:
    """Write policy.safetensors, tokenizer.json and config.json into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: value.contiguous() for name, value in policy.network.state_dict().items()}
    save_file(weights, folder / WEIGHTS_FILE)
    (folder / TOKENIZER_FILE).write_text(policy.tokenizer.text, encoding="utf-8")
    config = msgspec.json.format(msgspec.json.encode(policy.config, order="sorted"))
    (folder / CONFIG_FILE).write_bytes(config)


def load_policy(folder: Path) -> LocalPolicy:
    """The policy in `folder`; BadState naming the file that is missing or does not fit."""
    try:
        text = (folder / TOKENIZER_FILE).read_text(encoding="utf-8")
        config = msgspec.json.decode((folder / CONFIG_FILE).read_bytes(), type=PolicyConfig)
        weights = load_file(folder / WEIGHTS_FILE)
    except (OSError, msgspec.MsgspecError, SafetensorError) as error:
        raise BadState(f"snapshot folder {folder.name}: {error}; restore or retrain it") from error
    if config.format != FORMAT:
        raise BadState(
            f"snapshot folder {folder.name}: format {config.format!r}, this version reads {FORMAT};"
            " use the version that wrote it"
        )
    tokenizer = Tokenizer.parse(text)
    network = Network(config.shape)
    try:
        network.load_state_dict(weights)
    except RuntimeError as error:
        raise BadState(
            f"snapshot folder {folder.name}: weights do not fit config.json; restore the folder"
        ) from error
    return LocalPolicy(config, tokenizer, network.eval())
