"""The kinds of personal data: one frozen row each, the more specific check first.

In:   nothing
Out:  `KINDS`, from which the detector, the prefilter and the placeholders are made
Never: a pattern with look-around wider than a few characters, or one that backtracks past a run
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from afterbay.streams.pii import checks

LITERAL = "literal"
"""Kind of text that looks like one of our placeholders and is none."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One way a kind is written. Read by the detector."""

    pattern: re.Pattern[str]
    """On the folded text; the value is the group `value`, or the whole match without one."""
    valid: Callable[[str], bool] = checks.any_value
    """Check on the value, separators included."""
    after: re.Pattern[str] | None = None
    """Text before the value must end with this; None if it stands without context."""
    not_after: re.Pattern[str] | None = None
    """Text before the value must not end with this."""
    freestanding: bool = True
    """True if ASCII letters at its edges make it a part of an identifier."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of personal data; its place in `KINDS` is its precedence."""

    name: str
    """Its placeholder is `[name]`."""
    rules: tuple[Rule, ...]
    """The ways it is written."""
    digits: int = 0
    """For a number: its least count of digits, with at most two signs of `gap` between any two.
    Its rules then start at a run of digits, `+` or `(`. 0 if the kind is no number."""
    gates: tuple[str, ...] = ()
    """For the others: regexes of which every value matches one; `{name}` is a class of `GATES`."""


@dataclass(frozen=True, slots=True)
class GateClass:
    """A set of characters in a gate, before and after folding."""

    folded: str
    """Class for the folded text."""
    raw: str
    """Class (Rust syntax) for the text as it came: everything that folds into `folded`, except
    what `RAW_ALWAYS` lets through anyway."""


GATES = {
    "digit": GateClass("[0-9]", "[0-9]"),
    "letter": GateClass("[A-Za-z]", "[A-Za-z]"),
    "hex": GateClass("[0-9A-Fa-f]", "[0-9A-Fa-f]"),
    "word": GateClass("[0-9A-Za-z]", "[0-9A-Za-z]"),
    "at": GateClass("@", "[@﹫＠]"),
    "dot": GateClass("[.]", "[.﹒．]"),
    "colon": GateClass(":", "[:﹕：]"),
    "link": GateClass("[:-]", r"[:﹕：\p{Pd}−]"),
    "gap": GateClass("[ .()-]", r"[.()﹒．（）﹙﹚\p{Zs}\p{Pd}−]"),
}
"""Character classes that gates are written in."""

RAW_ALWAYS = (
    r"[\p{Nd}--0-9]|[Ａ-Ｚａ-ｚ]|\p{Cf}"
    r"|[\x{FE00}-\x{FE0F}\x{34F}\x{115F}\x{1160}\x{17B4}\x{17B5}\x{3164}\x{FFA0}]"
)
"""Characters so rare and so telling that a text with one is always looked at."""


def _rule(
    pattern: str,
    valid: Callable[[str], bool] = checks.any_value,
    *,
    after: str | None = None,
    not_after: str | None = None,
    freestanding: bool = True,
) -> Rule:
    def ending(text: str | None) -> re.Pattern[str] | None:
        return None if text is None else re.compile(rf"(?:{text})\Z", re.IGNORECASE)

    return Rule(re.compile(pattern), valid, ending(after), ending(not_after), freestanding)


# the edges of a number: no digit beside it, and no part of a decimal fraction
_L = r"(?<![0-9])(?<![0-9]\.)"
_R = r"(?![0-9])(?!\.[0-9])"

_OTHER_NUMBER = "order|acc|ticket|ref|invoice|case|订单|账号|账户|单号|流水|工单|编号|卡号|尾号"
_PHONE_BEFORE = (
    "(?:phone|tel|mobile|cell|call|dial|text|sms|whatsapp|reach me|fax|电话|手机|手机号码?|致电"
    rf"|来电|回电|拨打|座机|固话|传真|联系方式)(?:(?!{_OTHER_NUMBER})[^0-9\n]){{0,12}}"
)
_86 = r"(?:\((?:\+|00)?86\)|(?:\+|00)86)[ -]?"
_AREA = "(?:10|2[0-9]|[3-9][0-9]{2})"
_NXX = "[2-9][0-9]{2}"
_MOBILE = (
    "1[3-9][0-9](?:[ .-]?[0-9]{4}[ .-]?[0-9]{4}"
    "|[0-9][ .-][0-9]{3}[ .-][0-9]{4}|[ .-][0-9]{3}[ .-][0-9]{5})"
)
_LOCAL = "[2-9][0-9]{3}[ -]?[0-9]{3,4}"

_PHONES = (
    _rule(rf"{_L}(?:{_86}|86[ -]?|0)?{_MOBILE}{_R}"),
    _rule(rf"{_L}(?:\(0{_AREA}\) ?|0{_AREA}[ -]|{_86}(?:\(0\)|0)?{_AREA}[ -]?){_LOCAL}{_R}"),
    _rule(rf"{_L}0{_AREA}[2-9][0-9]{{6,7}}{_R}", after=_PHONE_BEFORE),
    _rule(rf"{_L}[2-9][0-9]{{7}}{_R}", after=r"(?:电话|座机|固话|传真)[^0-9\n]{0,4}"),
    # North America
    _rule(rf"{_L}(?:\+?1[ .-]?)?(?:\({_NXX}\)[ .-]?|{_NXX}[ .-]){_NXX}[ .-][0-9]{{4}}{_R}"),
    _rule(rf"{_L}\+1{_NXX}{_NXX}[0-9]{{4}}{_R}"),
    _rule(rf"{_L}1?{_NXX}{_NXX}[0-9]{{4}}{_R}", after=_PHONE_BEFORE),
    # everywhere else: ITU-T E.164, 8 to 15 digits
    _rule(rf"{_L}\+(?!1|86)[1-9](?:[ .-]?(?:\([0-9]{{1,4}}\)[ .-]?)?[0-9]){{7,14}}{_R}"),
    _rule(rf"{_L}00(?!1|86)[1-9][0-9]{{0,2}}(?:[ .-][0-9]{{2,5}}){{2,5}}{_R}", checks.e164),
)

_CARDS = (
    _rule(rf"{_L}[0-9]{{13,19}}{_R}", checks.bank_card),
    _rule(rf"{_L}[0-9]{{4}}(?:[ .-][0-9]{{4}}){{3}}{_R}", checks.bank_card),
    _rule(rf"{_L}[0-9]{{4}}(?:[ .-][0-9]{{4}}){{3}}[ .-]?[0-9]{{1,3}}{_R}", checks.bank_card),
    _rule(rf"{_L}[0-9]{{4}}[ .-][0-9]{{6}}[ .-][0-9]{{4,5}}{_R}", checks.bank_card),
    _rule(rf"{_L}[0-9]{{6}}[ .-][0-9]{{7,13}}{_R}", checks.bank_card),
)

# one alternative per length, so that an IBAN in groups of four ends where its country says
_IBAN = "|".join(
    rf"(?:{'|'.join(countries.split())})[0-9]{{2}}(?:[ -]?[0-9A-Z]){{{length - 4}}}"
    for length, countries in checks.IBAN_LENGTHS.items()
)

_BYTE = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IP_V4 = rf"{_BYTE}(?:\.{_BYTE}){{3}}"
# a word before the colon is a label (`ip:`) if it is no group of hex digits
_LABEL = (
    "(?:(?<![0-9A-Za-z:.-])(?:(?:(?=[0-9A-Za-z]*[G-Zg-z])[0-9A-Za-z]+|[A-Za-z]{5,}):)?"
    "|(?<=[^0-9A-Za-z:]:))"
)

_SSN_BEFORE = r"(?:ssn|social security(?: number| no\.?)?|社会安全号码?|社安号)[^0-9\n]{0,8}"
_ITIN_BEFORE = r"(?:itin|tax(?:payer)? id(?:entification)?(?: number)?)[^0-9\n]{0,8}"

KINDS: tuple[Kind, ...] = (
    Kind(
        "cn_resident_id",
        (
            _rule(
                r"(?<![0-9])[1-9][0-9]{5}[ -]?(?:18|19|20)[0-9]{2}[ -]?"
                r"(?:0[1-9]|1[0-2])[ -]?[0-3][0-9][ -]?[0-9]{3}[0-9Xx](?![0-9])",
                checks.cn_resident_id,
                freestanding=False,
            ),
        ),
        digits=17,
    ),
    Kind(
        "cn_uscc",
        (
            _rule(
                r"(?<![0-9A-Za-z])(?i:[1-9ANY])[1-9](?:10|1[1-5]|2[1-3]|3[1-7]|4[1-6]|5[0-4]"
                r"|6[1-5]|71|8[1-3])[0-9]{4}(?i:[0-9A-HJ-NP-RTUWXY]{10})(?![0-9A-Za-z])",
                checks.cn_uscc,
            ),
        ),
        gates=("{digit}{{7}}{word}{{10}}",),
    ),
    Kind(
        "iban",
        (_rule(rf"(?<![0-9])(?=[A-Za-z]{{2}}[0-9]{{2}})(?i:{_IBAN})(?![0-9A-Za-z])", checks.iban),),
        gates=("{letter}{{2}}{digit}{{2}}(?:{gap}?{word}){{11}}",),
    ),
    Kind("bank_card", _CARDS, digits=13),
    Kind(
        "us_ssn",
        (
            _rule(rf"{_L}[0-9]{{3}}-[0-9]{{2}}-[0-9]{{4}}{_R}(?!-)", checks.us_ssn),
            _rule(
                rf"{_L}[0-9]{{3}} ?[0-9]{{2}} ?[0-9]{{4}}{_R}",
                checks.us_ssn,
                after=_SSN_BEFORE,
            ),
        ),
        digits=9,
    ),
    Kind(
        "us_itin",
        (
            _rule(rf"{_L}9[0-9]{{2}}-[0-9]{{2}}-[0-9]{{4}}{_R}(?!-)", checks.us_itin),
            _rule(
                rf"{_L}9[0-9]{{2}} ?[0-9]{{2}} ?[0-9]{{4}}{_R}",
                checks.us_itin,
                after=_ITIN_BEFORE,
            ),
        ),
        digits=9,
    ),
    Kind("phone", _PHONES, digits=8),
    Kind(
        "email",
        (
            _rule(
                r"(?<![0-9A-Za-z._%+'-])[.%+'-]*+(?P<value>[0-9A-Za-z_][0-9A-Za-z._%+'-]*+@"
                r"(?:[0-9A-Za-z](?:[0-9A-Za-z-]{0,61}[0-9A-Za-z])?\.)+"
                r"(?:xn--[0-9A-Za-z-]{2,59}|[A-Za-z]{2,24}))",
                freestanding=False,
            ),
        ),
        gates=("{at}",),
    ),
    Kind(
        "mac",
        (
            _rule(
                rf"{_LABEL}"
                r"(?P<value>[0-9A-Fa-f]{2}(?P<sep>[:-])(?:[0-9A-Fa-f]{2}(?P=sep)){4}[0-9A-Fa-f]{2})"
                r"(?![0-9A-Za-z])(?!(?P=sep)[0-9A-Fa-f])",
                freestanding=False,
            ),
            _rule(
                r"(?<![0-9A-Za-z.])[0-9A-Fa-f]{4}\.[0-9A-Fa-f]{4}\.[0-9A-Fa-f]{4}"
                r"(?![0-9A-Za-z]|\.[0-9A-Fa-f])",
                checks.has_letter,
                freestanding=False,
            ),
        ),
        gates=("(?:{link}{hex}{{2}}){{5}}", "{dot}{hex}{{4}}{dot}{hex}{{4}}"),
    ),
    Kind(
        "ip",
        (
            _rule(
                rf"(?<![0-9A-Za-z])(?<![0-9]\.){_IP_V4}(?![0-9A-Za-z]|\.[0-9])",
                not_after=r"(?:版本号?|version|ver|release|section|chapter|build)\s*[:=#]?\s*",
                freestanding=False,
            ),
            _rule(
                rf"{_LABEL}"
                rf"(?P<value>[0-9A-Fa-f:]*(?::{_IP_V4}|[0-9A-Fa-f]|::))"
                r"(?![0-9A-Za-z]|\.[0-9])",
                checks.ip_v6,
                freestanding=False,
            ),
        ),
        gates=("(?:{dot}{digit}{{1,3}}){{3}}", "{colon}{hex}{{0,4}}{colon}"),
    ),
)
"""Every kind found, by falling precedence."""

PLACEHOLDER = re.compile(rf"\[(?:{'|'.join(kind.name for kind in KINDS)}|{LITERAL}|erased)\]")
"""Text of the form of a placeholder, on the text as it came."""

_LABEL_WORDS = """
card pan visa amex mastercard unionpay discover account acct no number num nr id idcard ssn itin
iban tel phone telephone mobile mob cell call fax sms text whatsapp wechat wx qq to is at from
"""
LABELS = frozenset(_LABEL_WORDS.split())
"""Words that may be glued to a value without making it a part of an identifier."""
