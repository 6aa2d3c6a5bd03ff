"""Check digits and formats that tell a value of a kind from a number that looks like one.

In:   the value as it stands in the folded text, separators included
Out:  True if the standard behind the kind accepts it
Sources: ISO/IEC 7812-1 (Luhn, issuer ranges), GB 11643 (resident ID), GB 32100 (credit code),
      ISO 13616 (IBAN registry), RFC 4291 (IPv6), SSA and IRS number ranges
"""

from __future__ import annotations

import ipaddress
import re
from datetime import date

from stdnum import luhn
from stdnum.cn import ric, uscc
from stdnum.iso7064 import mod_97_10

_SEPARATORS = str.maketrans("", "", " -.()")

_ISSUERS = re.compile(
    r"""
      4 (?: \d{12} | \d{15} | \d{18} )                           # Visa
    | (?: 5[1-5]\d{4} | 2(?:22[1-9]|2[3-9]\d|[3-6]\d\d|7[01]\d|720)\d\d ) \d{10}   # Mastercard
    | 3[47] \d{13}                                               # American Express
    | 3(?:0|6|8|9) \d{12,17}                                     # Diners Club
    | 35 \d{14,17}                                               # JCB
    | 220[0-4] \d{12,15}                                         # Mir
    | 6 \d{12,18} | 5[06-8] \d{11,17}        # UnionPay, Discover, Maestro, RuPay, CN debit
    | (?: 81 | 9[4-9] ) \d{14,17}                                # UnionPay 81, CN debit (9558 ...)
    """,
    re.VERBOSE,
)


def compact(value: str) -> str:
    """The value without separators, letters in upper case."""
    return value.translate(_SEPARATORS).upper()


def any_value(value: str) -> bool:
    """For kinds whose pattern says it all."""
    return bool(value)


def has_letter(value: str) -> bool:
    """A letter beside the digits."""
    return any(char.isalpha() for char in value)


def e164(value: str) -> bool:
    """As many digits as a number dialled with `00` has: 10 to 17."""
    return 10 <= len(compact(value)) <= 17


def bank_card(value: str) -> bool:
    """13 to 19 digits of a known issuer range with a Luhn digit."""
    digits = compact(value)
    return _ISSUERS.fullmatch(digits) is not None and luhn.is_valid(digits)


def cn_resident_id(value: str) -> bool:
    """A real date and the mod 11-2 check character; the region is not looked up."""
    number = compact(value)
    try:
        date(int(number[6:10]), int(number[10:12]), int(number[12:14]))
    except ValueError:
        return False
    return ric.calc_check_digit(number) == number[-1]


def cn_uscc(value: str) -> bool:
    """The mod 31 check character of a unified social credit code."""
    code = compact(value)
    return uscc.calc_check_digit(code[:-1]) == code[-1]


IBAN_LENGTHS = {
    15: "NO",
    16: "BE",
    18: "DK FK FI FO GL NL SD",
    19: "MK SI",
    20: "AT BA EE KZ LT LU MN XK",
    21: "CH CR HR LI LV",
    22: "BG BH DE GB GE IE ME RS VA",
    23: "AE GI IL IQ OM SO TL",
    24: "AD CZ DZ ES MD PK RO SA SE SK TN VG",
    25: "AO CV GW LY MZ PT ST",
    26: "BI DJ IS SN TR",
    27: "BF BJ CF CG CI CM FR GA GQ GR IT MC MG ML NE SM TD TG",
    28: "AL AZ BY CY DO GT HN HU KM LB LY MA NI PL SV",
    29: "BR EG PS QA UA",
    30: "JO KW MU YE",
    31: "MT SC",
    32: "LC",
    33: "RU",
}
"""Countries by the length of their IBAN (ISO 13616 registry)."""


def iban(value: str) -> bool:
    """ISO 7064 mod 97-10 with the country code moved to the end."""
    number = compact(value)
    return mod_97_10.is_valid(number[4:] + number[:4])


def us_ssn(value: str) -> bool:
    """Area not 000, 666 or 9xx, group not 00, serial not 0000."""
    digits = compact(value)
    area, group, serial = digits[:3], digits[3:5], digits[5:]
    return area not in {"000", "666"} and area[0] != "9" and group != "00" and serial != "0000"


def us_itin(value: str) -> bool:
    """Area 9xx and a group that the IRS gives out: 50-65, 70-88, 90-92, 94-99."""
    digits = compact(value)
    group = int(digits[3:5])
    given = 50 <= group <= 65 or 70 <= group <= 88 or (90 <= group <= 99 and group != 93)
    return digits[0] == "9" and given


def ip_v6(value: str) -> bool:
    """An IPv6 address with two groups or more and a digit, so that `std::` code is none."""
    groups = [group for group in value.split(":") if group]
    if len(groups) < 2 or not any(char.isdigit() for char in value):
        return False
    try:
        ipaddress.IPv6Address(value)
    except ValueError:
        return False
    return True
