"""Made-up personal data with valid check digits, to plant in messages and look for afterwards.

In:   a random generator
Out:  `Planted` values of the kinds phone, bank_card, email, cn_resident_id
Never: a real person's data; every digit is drawn
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from random import Random

_FULL_WIDTH = {code: code + 0xFEE0 for code in range(0x21, 0x7F)}
_ID_WEIGHTS = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
_ID_CHECKS = "10X98765432"
_REGIONS = ("110105", "310104", "440305", "510107", "330106", "420111")
_CARD_STARTS = ("621700", "622848", "455673", "540912")
_MAILBOXES = ("lin", "chen", "sara", "tom", "mei", "omar", "anna", "wei")


@dataclass(frozen=True, slots=True)
class Planted:
    """One personal value in a message. Made by the corpus, read by the leak scan."""

    kind: str
    """phone, bank_card, email or cn_resident_id."""
    value: str
    """Canonical ASCII form."""
    full_width: bool
    """True if the message carries it in full-width characters."""

    @property
    def written(self) -> str:
        """As it stands in the message."""
        return self.value.translate(_FULL_WIDTH) if self.full_width else self.value


def luhn_digit(body: str) -> str:
    """The digit that makes `body` + digit pass Luhn (ISO/IEC 7812-1 annex B)."""
    doubled = (int(d) * (2 if i % 2 == 0 else 1) for i, d in enumerate(reversed(body)))
    return str(-sum(d - 9 if d > 9 else d for d in doubled) % 10)


def resident_id_check(body: str) -> str:
    """The 18th character of a Chinese resident ID from its first 17 (GB 11643, mod 11-2)."""
    total = sum(int(d) * w for d, w in zip(body, _ID_WEIGHTS, strict=True))
    return _ID_CHECKS[total % 11]


def _digits(random: Random, n: int) -> str:
    return "".join(random.choices("0123456789", k=n))


def _phone(random: Random) -> str:
    return "1" + random.choice("3456789") + _digits(random, 9)


def _bank_card(random: Random) -> str:
    body = random.choice(_CARD_STARTS)
    body += _digits(random, (18 if body.startswith("62") else 15) - len(body))
    return body + luhn_digit(body)


def _email(random: Random) -> str:
    return f"{random.choice(_MAILBOXES)}.{_digits(random, 6)}@example.com"


def _resident_id(random: Random) -> str:
    born = date(1955, 1, 1) + timedelta(days=random.randrange(18_000))
    body = random.choice(_REGIONS) + born.strftime("%Y%m%d") + _digits(random, 3)
    return body + resident_id_check(body)


_MAKERS: dict[str, Callable[[Random], str]] = {
    "phone": _phone,
    "bank_card": _bank_card,
    "email": _email,
    "cn_resident_id": _resident_id,
}
KINDS = tuple(_MAKERS)


def plant(random: Random, kind: str | None = None) -> Planted:
    """A new value of `kind` (any kind if None), raw or full-width by the toss of a coin."""
    chosen = random.choice(KINDS) if kind is None else kind
    return Planted(chosen, _MAKERS[chosen](random), full_width=random.random() < 0.5)
