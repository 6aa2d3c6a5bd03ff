"""Personal data: found on a folded copy, cut out of the text, and put back byte for byte.

In:   texts (zh and en, finance), or JSON texts
Out:  `Redactor` and `redact_many`; a finding is a `Span`, a text that failed a `Failed`
Never: knows keys; the flusher seals what is cut out (`streams.keys`)
"""

from collections.abc import Sequence

from afterbay.streams.pii.json_text import redact_json
from afterbay.streams.pii.redact import Failed, Redacted, Redactor, Span, reveal

__all__ = ["Failed", "Redacted", "Redactor", "Span", "redact_json", "redact_many", "reveal"]


def redact_many(texts: Sequence[str]) -> list[Redacted | Failed]:
    """Each text redacted with the built-in kinds; see `Redactor.redact_many`."""
    return Redactor().redact_many(texts)
