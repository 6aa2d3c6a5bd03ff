"""Linear text classifiers on hashed n-grams: the two models that judge in the demo.

In:   texts, their labels, a way to cut texts into n-grams
Out:  the label of each text
Never: sees more than the labels it is given; ridge regression in closed form, so the same
      labels give the same model
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from afterbay.schemas.errors import BadSettings

BUCKETS = 1 << 13
_CHUNK = 512
_WORD = re.compile(r"[a-z0-9']+|[\u4e00-\u9fff]")

Cut = Callable[[str], Iterable[str]]


def words(text: str) -> list[str]:
    """Latin words and single Chinese characters, and each neighbouring pair of them."""
    single = _WORD.findall(text.lower())
    return single + [f"{a} {b}" for a, b in pairwise(single)]


def characters(text: str) -> list[str]:
    """Character n-grams of 2 to 4, blanks included."""
    padded = f" {text.lower()} "
    return [padded[i : i + n] for n in (2, 3, 4) for i in range(len(padded) - n + 1)]


class Classifier:
    """One-against-all ridge regression on hashed, length-normalised n-gram counts."""

    def __init__(
        self, texts: Sequence[str], labels: Sequence[str], cut: Cut, ridge: float = 0.3
    ) -> None:
        if not texts:
            raise BadSettings("classifier: no labelled messages to learn from")
        self.cut = cut
        self.classes = sorted(set(labels))
        x = self._features(texts)  # (n, buckets)
        hits = np.array([[label == c for c in self.classes] for label in labels], dtype=np.float32)
        self.bias = hits.mean(axis=0)  # (classes,)
        dual = np.linalg.solve(x @ x.T + ridge * np.eye(len(x), dtype=x.dtype), hits - self.bias)
        self.weights = x.T @ dual  # (buckets, classes)

    def predict(self, texts: Sequence[str]) -> list[str]:
        """The most likely label of each text."""
        found: list[str] = []
        for start in range(0, len(texts), _CHUNK):
            scores = self._features(texts[start : start + _CHUNK]) @ self.weights + self.bias
            found += [self.classes[i] for i in scores.argmax(axis=1)]
        return found

    def _features(self, texts: Sequence[str]) -> NDArray[np.float32]:
        x = np.zeros((len(texts), BUCKETS), dtype=np.float32)
        for row, text in zip(x, texts, strict=True):
            at = [zlib.crc32(gram.encode()) % BUCKETS for gram in self.cut(text)]
            np.add.at(row, at, 1.0)
        np.log1p(x, out=x)
        lengths = np.linalg.norm(x, axis=1, keepdims=True)
        np.divide(x, lengths, out=x, where=lengths > 0)
        return x
