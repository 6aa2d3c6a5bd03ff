"""The local policy's network: a trunk reads prompt and response so far, a head gives tokens.

In:   bags of prompt token ids, response prefixes, the tokens that anybody may choose now
Out:  logits (N, C), one row per response position, one column per token asked for
Never: lets one number depend on the others asked for with it. A matrix product's rounding depends
on its shape, so every product runs on blocks of exactly `BLOCK` rows, and logits on `BLOCK` tokens
at a time; a node that answers three requests and a trainer that weighs 128 get the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # the name every torch reader knows
from torch import Tensor, nn

BLOCK = 32
"""Rows of a matrix product, and tokens of a product that gives logits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Sizes of the network. Part of config.json."""

    vocabulary: int
    """Tokens of the tokenizer."""
    embedding: int = 64
    """Width of token embeddings."""
    width: int = 256
    """Width of the trunk."""
    dropout: float = 0.3
    """Share of activations dropped in gradients; sampling and weighing drop none."""
    logit_cap: float = 3.0
    """Logits lie within ± this, so that no token's odds are beyond exp(2 * logit_cap)."""


class BlockLinear(nn.Linear):
    """A linear map of rows (N, in) -> (N, out), always computed `BLOCK` rows at a time."""

    def forward(self, rows: Tensor) -> Tensor:
        """(N, in) -> (N, out); N is padded to whole blocks with zero rows."""
        return blockwise(rows, self.weight, self.bias)


def blockwise(rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """rows (N, in) @ weight.T (in, out) + bias, `BLOCK` rows at a time."""
    count = len(rows)
    padded = F.pad(rows, (0, 0, 0, -count % BLOCK))
    blocks = [F.linear(block, weight, bias) for block in torch.split(padded, BLOCK)]
    return torch.cat(blocks)[:count]


class Trunk(nn.Module):
    """Prompt bag -> LN -> MLP; plus a decayed sum of the response so far -> residual MLP."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        # index 0 is the mask embedding, token id i is index i + 1
        self.read = nn.Embedding(shape.vocabulary + 1, shape.embedding)
        self.said = nn.Embedding(shape.vocabulary + 1, shape.embedding)
        self.read_norm = nn.LayerNorm(shape.embedding)
        self.dropout = nn.Dropout(shape.dropout)
        self.body_in = BlockLinear(shape.embedding, shape.width)
        self.body_out = BlockLinear(shape.width, shape.width)
        self.said_in = BlockLinear(shape.embedding, shape.width, bias=False)
        self.step_norm = nn.LayerNorm(shape.width)
        self.step_in = BlockLinear(shape.width, shape.width)
        self.step_out = BlockLinear(shape.width, shape.width)

    def prompt(self, tokens: Tensor, offsets: Tensor) -> Tensor:
        """Bags of indices (flat tokens, start of each bag) -> (B, width)."""
        bag = F.embedding_bag(tokens, self.read.weight, offsets, mode="sum")
        hidden = F.gelu(self.body_in(self.dropout(self.read_norm(bag))))
        out: Tensor = self.body_out(self.dropout(hidden))
        return out

    def step(self, prompt: Tensor, said: Tensor) -> Tensor:
        """Prompt rows (N, width) and response states (N, embedding) -> (N, width)."""
        state = self.step_norm(prompt + self.said_in(said))
        out: Tensor = state + self.step_out(F.gelu(self.step_in(state)))
        return out


class Head(nn.Module):
    """Trunk rows -> logits of the tokens asked for, through a narrow factor, softly capped.

    Without the cap a policy grows certain of what it never tried: importance weights then span
    orders of magnitude, and a handful of rows decides every estimate.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.narrow = BlockLinear(shape.width, shape.embedding)
        self.tokens = BlockLinear(shape.embedding, shape.vocabulary)
        self.cap = shape.logit_cap

    def forward(self, rows: Tensor, tokens: Tensor) -> Tensor:
        """(N, width), token ids (C,) -> (N, C)."""
        narrow = self.narrow(rows)
        padded = F.pad(tokens, (0, -len(tokens) % BLOCK))
        blocks = [
            blockwise(narrow, self.tokens.weight[block], self.tokens.bias[block])
            for block in torch.split(padded, BLOCK)
        ]
        free = torch.cat(blocks, dim=1)[:, : len(tokens)]
        return self.cap * torch.tanh(free / self.cap)


class Network(nn.Module):
    """Trunk and head; the parameters' names say which is which."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.trunk = Trunk(shape)
        self.head = Head(shape)

    def said(self, response: Tensor) -> Tensor:
        """State before each position: (B, T) indices -> (B, T, embedding).

        state[t] = state[t-1] / 2 + embedding of token t-1, so that order counts.
        """
        embedded = self.trunk.said(response)
        state = torch.zeros_like(embedded[:, 0])
        states = [state]
        for position in range(embedded.shape[1] - 1):
            state = state / 2 + embedded[:, position]
            states.append(state)
        return torch.stack(states, dim=1)

    def logits(self, prompt: Tensor, said: Tensor, tokens: Tensor) -> Tensor:
        """Prompt rows (N, width), response states (N, embedding), tokens (C,) -> (N, C)."""
        out: Tensor = self.head(self.trunk.step(prompt, said), tokens)
        return out


def new_network(shape: Shape, seed: int) -> Network:
    """A network with fresh weights drawn from `seed` alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = Network(shape)
        for table in (network.trunk.read, network.trunk.said):
            nn.init.normal_(table.weight, std=0.1)
    return network.eval()
