"""What a planted value looks like when it leaks: every writing of it, as bytes to search for.

In:   planted values, and a tokenizer if there is one
Out:  a `Searcher` that counts them in bytes, by form
Never: gives a value back; what it reports are counts
"""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec
import polars as pl

from afterbay.streams.pii.folding import fold

FORMS = ("raw", "folded", "full_width", "json_escaped", "base64", "token_ids")
"""Ways a value is looked for; a needle that two of them share counts as the first."""

Encode = Callable[[str], Sequence[int]]
"""A tokenizer: token ids of a text."""

_LEAST_BYTES = 6
"""Shorter needles are found by chance."""
_LEAST_IDS = 3
_AROUND = ("{}", " {}", "{} ", "是{}，", "a {} b")
"""Neighbours of a value in a text, which change how a tokenizer cuts it."""


def needles(values: Iterable[str], encode: Encode | None = None) -> dict[bytes, tuple[str, str]]:
    """Bytes to search for, each with its form and the value it belongs to."""
    found: dict[bytes, tuple[str, str]] = {}
    for value in values:
        for form, needle in _writings(value, encode):
            if len(needle) >= _LEAST_BYTES:
                found.setdefault(needle, (form, value))
    return found


def _writings(value: str, encode: Encode | None) -> Iterator[tuple[str, bytes]]:
    folded = fold(value).text
    texts = {"raw": value, "folded": folded, "full_width": _full_width(folded)}
    for form, text in texts.items():
        yield form, text.encode()
    for text in dict.fromkeys(texts.values()):
        yield "json_escaped", json.dumps(text)[1:-1].encode()
        for needle in base64_alignments(text.encode()):
            yield "base64", needle
            yield "base64", needle.translate(_URL_SAFE)
    if encode is not None:
        for text in dict.fromkeys(texts.values()):
            for ids in _id_runs(text, encode):
                yield from (("token_ids", needle) for needle in id_writings(ids))


_URL_SAFE = bytes.maketrans(b"+/", b"-_")


def base64_alignments(data: bytes) -> list[bytes]:
    """What base64 shows of `data`, wherever in a longer text of three-byte groups it stands."""
    shown = []
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + data)
        # characters that also hold bits of a neighbour are left out
        first, last = -(-before * 8 // 6), (before + len(data)) * 8 // 6
        shown.append(encoded[first:last])
    return shown


def _full_width(text: str) -> str:
    return "".join(chr(ord(char) + 0xFEE0) if "!" <= char <= "~" else char for char in text)


def _id_runs(value: str, encode: Encode) -> Iterator[tuple[int, ...]]:
    """Token ids that spell `value` in a few contexts; the neighbours' own ids cut off."""
    runs = set()
    for around in _AROUND:
        ids = tuple(encode(around.format(value)))
        before, after = (tuple(encode(part)) for part in around.split("{}"))
        start = _common(ids, before)
        end = len(ids) - _common(ids[::-1], after[::-1])
        runs.add(ids[start:end])
    # one id over and over (what a tokenizer makes of characters it does not know) says nothing
    yield from (run for run in runs if len(run) >= _LEAST_IDS and len(set(run)) > 1)


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the longest start that both have."""
    return next(
        (at for at, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )


def id_writings(ids: Sequence[int]) -> tuple[bytes, ...]:
    """A run of token ids as Avro, msgpack, JSON (dense and spaced) and `spaced` write it."""
    avro = b"".join(_zigzag(token) for token in ids)
    packed = b"".join(msgspec.msgpack.encode(token) for token in ids)
    dense = ",".join(str(token) for token in ids).encode()
    return avro, packed, dense, dense.replace(b",", b", "), spaced(ids)


def spaced(ids: Iterable[int]) -> bytes:
    """Token ids apart from each other by one space; how lists in tables are searched."""
    return b" " + b" ".join(str(token).encode() for token in ids) + b" "


def _zigzag(value: int) -> bytes:
    """Avro's variable-length integer."""
    rest, out = (value << 1) ^ (value >> 63), bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


class Searcher:
    """Counts needles in bytes; Aho-Corasick by polars, about 200 MB/s for thousands of them."""

    def __init__(self, values: Iterable[str], encode: Encode | None = None) -> None:
        self._needles = needles(values, encode)
        # latin-1 gives each byte its own character, so the search is one of bytes
        self._patterns = pl.Series(
            values=[n.decode("latin-1") for n in self._needles], dtype=pl.String
        )
        self.longest = max((len(needle) for needle in self._needles), default=0)
        """Bytes of the longest needle; pieces of a file must overlap by one less."""

    def search(self, blob: bytes) -> Counter[bytes]:
        """How often each needle stands in `blob`."""
        if not self._needles or not blob:
            return Counter()
        text = pl.Series(values=[blob.decode("latin-1")], dtype=pl.String)
        found = text.str.extract_many(self._patterns.implode(), overlapping=True)[0]
        return Counter(match.encode("latin-1") for match in found)

    def meaning(self, needle: bytes) -> tuple[str, str]:
        """Form and value of a needle."""
        return self._needles[needle]
