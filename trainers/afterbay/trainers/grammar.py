"""Which token may come next: a trie over the names of the tools that were offered.

In:   tool names and how each is spelled in tokens
Out:  nodes to walk, and the token ids allowed at each
Refuses: no tools, two tools spelled alike, a name longer than a response may be (BadSettings)

The same grammar masks the logits in sampling and in training.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from afterbay.schemas.errors import BadSettings
from afterbay.trainers.tokenizer import Tokenizer

ROOT = 0
DEAD = -1
"""The node after a token that the grammar does not allow, or that was masked."""


class Grammar:
    """A trie whose paths are tool names in tokens, each closed by the end token."""

    def __init__(self, spelled: Sequence[tuple[int, ...]]) -> None:
        self._children: list[dict[int, int]] = [{}]
        for path in spelled:
            self._insert(path)

    def _insert(self, path: tuple[int, ...]) -> None:
        node = ROOT
        for token_id in path:
            if token_id not in self._children[node]:
                self._children[node][token_id] = len(self._children)
                self._children.append({})
            node = self._children[node][token_id]

    def __len__(self) -> int:
        """Number of nodes."""
        return len(self._children)

    def allowed(self, node: int) -> tuple[int, ...]:
        """Token ids that may come at `node`, ascending; none at a leaf."""
        return tuple(sorted(self._children[node]))

    def next(self, node: int, token_id: int) -> int:
        """The node after `token_id`, or DEAD."""
        return DEAD if node == DEAD else self._children[node].get(token_id, DEAD)

    def walk(self, ids: Sequence[int]) -> list[int]:
        """The node at which each of `ids` was chosen; DEAD once the path has left the trie."""
        nodes, node = [], ROOT
        for token_id in ids:
            nodes.append(node)
            node = self.next(node, token_id)
        return nodes

    def accepts(self, ids: Sequence[int]) -> bool:
        """True if `ids` is a whole path, end token included."""
        node = ROOT
        for token_id in ids:
            node = self.next(node, token_id)
        return node != DEAD and not self._children[node]


def grammar_of(tokenizer: Tokenizer, tools: tuple[str, ...], max_tokens: int) -> Grammar:
    """The grammar of `tools`; cached, since most requests offer the same ones."""
    if not tools:
        raise BadSettings("grammar: no tools to choose from; offer at least one tool")
    return _grammar_of(tokenizer, tools, max_tokens)


@lru_cache(maxsize=256)
def _grammar_of(tokenizer: Tokenizer, tools: tuple[str, ...], max_tokens: int) -> Grammar:
    spelled = [(*tokenizer.encode_name(name), tokenizer.end_id) for name in tools]
    for position, path in enumerate(spelled):
        text = "".join(map(tokenizer.piece, path))
        if text != tools[position] or len(path) == 1:
            raise BadSettings(
                f"tool {position}: its name has characters outside A-Z a-z 0-9 _ - . ; rename it"
            )
        if len(path) > max_tokens:
            raise BadSettings(
                f"tool {position}: its name takes {len(path)} tokens of at most {max_tokens};"
                " give it a shorter name"
            )
    if len(set(spelled)) < len(spelled):
        raise BadSettings("two tools have the same name; rename one")
    return Grammar(spelled)
