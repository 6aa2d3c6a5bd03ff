"""How Spark masks: three patterns that Java and Python read alike. Also read by a test."""

from __future__ import annotations

KINDS = (
    (r"[0-9A-Za-z._%+-]+@[0-9A-Za-z.-]+\.[A-Za-z]{2,}", "[email]"),
    (r"(?<![0-9])[0-9]{15,18}[0-9Xx](?![0-9])", "[number]"),
    (r"(?<![0-9])1[3-9][0-9]{9}(?![0-9])", "[phone]"),
)
