"""Text to token ids and back: byte-pair encoding over characters, trained on the policy's own text.

In:   training texts, or a tokenizer.json
Out:  `Encoded` ids with the end of each token in code points; the text piece of an id
Refuses: a tokenizer.json that is not one of ours, with BadState
Never: splits a character over two tokens, so a span of the text always covers whole tokens

Pieces are literal substrings (a leading space belongs to the word after it), so joining the
pieces of a response gives its text. A character never seen in training is one unknown token.
"""

from __future__ import annotations

import hashlib
import string
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

from tokenizers import Regex
from tokenizers import Tokenizer as HfTokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import Split
from tokenizers.trainers import BpeTrainer

from afterbay.schemas.errors import BadState

MASK_ID = -1
"""Token id that the flusher puts in place of one that overlaps personal data."""

END = "<end>"
UNKNOWN = "<unk>"
_WORDS = Regex(r" ?[^\W_]+|_[^\W_]*| ?[^\w\s]+|\s+")
_TOOL_NAME_ALPHABET = list(string.ascii_letters + string.digits + "_-. ")


@dataclass(frozen=True, slots=True)
class Encoded:
    """Token ids of a text. Made by the tokenizer, read by nodes and the gateway."""

    ids: tuple[int, ...]
    ends: tuple[int, ...]
    """End of each token, exclusive, in code points of the text; strictly ascending.

    Token i covers [ends[i-1], ends[i]); characters between tokens belong to the later one.
    """


class Tokenizer:
    """One trained tokenizer; its fingerprint names it in events and manifests."""

    def __init__(self, core: HfTokenizer) -> None:
        self._core = core
        self.text = core.to_str()
        """Content of tokenizer.json."""
        self.fingerprint = hashlib.sha256(self.text.encode()).hexdigest()
        """SHA-256 of tokenizer.json; equal ids mean equal tokens."""
        end = core.token_to_id(END)
        if end is None or core.token_to_id(UNKNOWN) is None:
            raise BadState(f"tokenizer has no {END} or no {UNKNOWN} token; make it by warmstart")
        self.end_id: int = end
        """Ends every response."""

    @classmethod
    def train(cls, texts: Iterable[str], size: int) -> Tokenizer:
        """A tokenizer of at most `size` tokens for `texts`; the same texts give the same one."""
        core = HfTokenizer(BPE(unk_token=UNKNOWN, fuse_unk=False))
        core.pre_tokenizer = Split(_WORDS, "isolated")
        trainer = BpeTrainer(
            vocab_size=size,
            special_tokens=[END, UNKNOWN],
            initial_alphabet=_TOOL_NAME_ALPHABET,
            show_progress=False,
        )
        core.train_from_iterator((fold(text) for text in texts), trainer)
        return cls(core)

    @classmethod
    def parse(cls, text: str) -> Tokenizer:
        """The tokenizer in the content of a tokenizer.json."""
        try:
            core = HfTokenizer.from_str(text)
        except Exception as error:  # the Rust binding raises bare Exception
            raise BadState(f"tokenizer.json does not parse: {error}; restore the file") from error
        return cls(core)

    @property
    def size(self) -> int:
        """Number of tokens; ids are below it."""
        return self._core.get_vocab_size(with_added_tokens=True)

    def encode(self, text: str) -> Encoded:
        """Ids of a prompt, and the end of each token in code points of `text` itself."""
        encoding = self._core.encode(fold(text), add_special_tokens=False)
        return Encoded(tuple(encoding.ids), tuple(end for _, end in encoding.offsets))

    def encode_name(self, name: str) -> tuple[int, ...]:
        """Ids of a tool name, letter case kept; their pieces join to `name`, without the end."""
        return tuple(self._core.encode(name, add_special_tokens=False).ids)

    def piece(self, token_id: int) -> str:
        """The text of one token; empty for the end, U+FFFD for a masked or unknown one."""
        if token_id == self.end_id:
            return ""
        piece = self._core.id_to_token(token_id) if token_id >= 0 else None
        return "\ufffd" if piece is None or piece == UNKNOWN else str(piece)


def fold(text: str) -> str:
    """`text` in lower case and compatibility form, character by character: offsets stay."""
    if text.isascii():
        return text.lower()
    return "".join(map(_fold_character, text))


def _fold_character(character: str) -> str:
    folded = unicodedata.normalize("NFKC", character).lower()
    return folded if len(folded) == 1 else character
