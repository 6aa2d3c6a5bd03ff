"""Who may open what is sealed: a known key, with the scope, that gives a reason."""

from __future__ import annotations

import pytest

from afterbay.platform.access import Attempt, _refusal
from afterbay.platform.apikeys import DECRYPT, ApiKey


def key(*scopes: str) -> ApiKey:
    return ApiKey(id="key_1", name="n", sha256="0", created_at="2026", scopes=scopes)


def attempt(reason: str = "ticket 7") -> Attempt:
    return Attempt(action="reveal", scope=DECRYPT, targets=("deadletter/1",), reason=reason)


def test_a_key_with_the_scope_and_a_reason_is_let_in() -> None:
    assert _refusal(key(DECRYPT), "ab-secret", attempt()) == ""


@pytest.mark.parametrize(
    ("found", "text", "reason", "why"),
    [
        (None, "", "ticket 7", "AFTERBAY_API_KEY"),
        (None, "ab-secret", "ticket 7", "none of this home"),
        (key(), "ab-secret", "ticket 7", "--scope pii:decrypt"),
        (key(DECRYPT), "ab-secret", " ", "no reason"),
    ],
)
def test_everybody_else_is_told_what_is_missing_and_never_their_key(
    found: ApiKey | None, text: str, reason: str, why: str
) -> None:
    refusal = _refusal(found, text, attempt(reason))
    assert why in refusal
    assert "secret" not in refusal
