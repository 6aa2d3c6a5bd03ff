"""Which values are found, and where exactly; which numbers stay."""

import json
import random
import uuid
from pathlib import Path

import pytest
from stdnum import luhn
from stdnum.cn import ric

from afterbay.streams.pii.detect import Detector

GOLDEN = Path(__file__).parents[4] / "shared" / "golden" / "pii.json"
DETECTOR = Detector()

FOUND = {
    # GB 11643-1999: six digits of region, date, sequence, check character by ISO 7064 mod 11-2
    "cn_resident_id": (
        "11010519491231002X",  # the standard's own example
        "440524188001010014",  # and its second one
        "11010519491231002x",
        "110105 19491231 002X",
        "110105-19491231-002X",
        "１１０１０５１９４９１２３１００２Ｘ",
        "360426199101010071",  # python-stdnum's example
    ),
    # GB 32100-2015
    "cn_uscc": ("91110000600037341L", "91110105MA37899143", "91110000600037341l"),
    # the registry's own examples (ISO 13616, SWIFT IBAN registry)
    "iban": (
        "GB29NWBK60161331926819",
        "GB29 NWBK 6016 1331 9268 19",
        "DE89370400440532013000",
        "FR1420041010050500013M02606",
        "NO9386011117947",
        "MT84MALT011000012345MTLCAST001S",
        "CH93 0076 2011 6238 5295 7",
        "gb29nwbk60161331926819",
    ),
    # issuers' published test numbers
    "bank_card": (
        "4111111111111111",
        "4222222222222",  # Visa of 13 digits
        "5555555555554444",
        "2223003122003222",  # Mastercard's second range
        "378282246310005",
        "3714 496353 98431",
        "6011111111111117",
        "3530111333300000",
        "30569309025904",
        "6200000000000005",  # UnionPay
        "6212 3456 7890 0000 003",
        "4111-1111-1111-1111",
        "４１１１１１１１１１１１１１１１",
        "4111\u200b1111\u200b1111\u200b1111",
    ),
    "us_ssn": ("219-09-9999", "078-05-1120"),
    "us_itin": ("912-70-1234", "900-50-0001"),
    "phone": (
        "13812345678",
        "138 1234 5678",
        "138-1234-5678",
        "+8613812345678",
        "+86 138-1234-5678",
        "0086 13812345678",
        "8613812345678",
        "(+86)13812345678",
        "010-62345678",
        "(021)68347017",
        "0755-2634 5678",
        "+86 21 6834 7017",
        "+86 (0)10 6234 5678",
        "415-555-0146",
        "(415) 555-0146",
        "+1 415 555 0146",
        "+14155550146",
        "1-415-555-0146",
        "+44 20 7946 0958",
        "+442079460958",
        "+33 1 23 45 67 89",
        "+852 9123 4567",
        "0044 20 7946 0958",
        "１３８１２３４５６７８",
        "١٣٨١٢٣٤٥٦٧٨",
        "138\u200b1234\ufeff5678",
        "138‐1234‐5678",
    ),
    "email": (
        "li.na54@example.com",
        "first.last+tag@sub.example.co.uk",
        "a@b.cn",
        "user_name@example-site.org",
        "x%y@example.museum",
        "1234567@qq.com",
        "13812345678@163.com",
        "ｌｉ＠example．com",
        "user@xn--fsqu00a.xn--0zwm56d",
        "O'Neil@example.ie",
    ),
    "mac": ("24:29:2e:3b:83:d5", "24-29-2E-3B-83-D5", "2429.2e3b.83d5"),
    "ip": (
        "10.195.194.150",
        "255.255.255.0",
        "192.168.0.1",
        "2001:db8::330:9bdf",
        "2001:db8:0:0:1:0:0:1",
        "fe80::1ff:fe23:4567:890a",
        "::ffff:192.0.2.128",
        "2001:db8::",
    ),
}
"""Values by kind; each must be found whole wherever it stands."""

AROUND = ("我的{}，谢谢", "it is {} thanks", "{}", "号码：{}。", "({})", "see:{}", "{}\n", "是{}吗")


@pytest.mark.parametrize(("kind", "value"), [(k, v) for k, vs in FOUND.items() for v in vs])
def test_a_value_is_found_whole_wherever_it_stands(kind: str, value: str) -> None:
    for frame in AROUND:
        text = frame.format(value)
        start = frame.index("{")
        if value.startswith("(") and frame == "({})":
            continue  # "((021)…": whose bracket it is cannot be told
        found = [(m.kind, m.start, m.end) for m in DETECTOR.find(text)]
        assert found == [(kind, start, start + len(value))], text


STAYS = (
    "订单号202409011234567890已发货",
    "order 20240901123456",
    "invoice 2024-0001234",
    "023e4567-e89b-12d3-a456-426614174000",
    "截至2024-06-30 23:59:59.123456有效",
    "2024-06-30T23:59:59Z",
    "金额1,234,567.89元",
    "¥12345678.90",
    "3.14159265358979",
    "4111111111111112",  # Luhn digit off by one
    "4111 1111 1111 1112",
    "11010519491231002 X",
    "110105194913310021",  # no 31st of a 13th month
    "110105194912310021",  # check character off
    "91110000600037341K",
    "GB29NWBK60161331926818",
    "XX29NWBK60161331926819",
    "000-12-3456",
    "666-12-3456",
    "900-12-3456",
    "219-00-9999",
    "219-09-0000",
    "12345678901",  # no mobile starts 12
    "138123456789",  # a digit too many
    "1381234567",  # a digit too few
    "4155550146 is the ticket",
    "115-555-0146",
    "epoch 1717171717171 ms",
    "1717171717",
    "版本1.2.3.4发布",
    "version 1.2.3.4",
    "1.2.3.4.5",
    "256.1.1.1",
    "192.168.x",
    "std::vector and ace::bad",
    "12:30:45",
    "2001:db8:::1",
    "24:29:2e:3b:83",
    "24:29:2e:3b:83:d5:11",
    "@here please help",
    "a@b is not an address",
    "user@",
    "@example.com",
    "tracking 1Z999AA10123456784",
    "sha256 e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "利率3.85%到2026年12月",
    "30-day limit is 5000",
    "v8613812345678a9f",
    "JD13812345678",
    "[unknown] and [Phone]",
)
"""Texts that hold nothing to be found."""


@pytest.mark.parametrize("text", STAYS)
def test_numbers_that_are_nobodys_stay(text: str) -> None:
    assert DETECTOR.find(text) == []


IN_CONTEXT = (
    ("phone", "call me at {}", "4155550146"),
    ("phone", "我的电话是{}", "02168347017"),
    ("phone", "座机{}", "68347017"),
    ("us_ssn", "my SSN is {}", "219099999"),
    ("us_ssn", "social security number: {}", "219 09 9999"),
    ("us_itin", "ITIN {}", "912701234"),
    ("phone", "tel{}", "13812345678"),
    ("bank_card", "card{} declined", "4111111111111111"),
    ("ip", "ip:{}", "2001:db8::1f"),
    ("mac", "mac:{}", "24:29:2e:3b:83:d5"),
)


@pytest.mark.parametrize(("kind", "frame", "value"), IN_CONTEXT)
def test_words_before_a_value_tell_what_it_is(kind: str, frame: str, value: str) -> None:
    text = frame.format(value)
    start = frame.index("{")
    assert [(m.kind, m.start, m.end) for m in DETECTOR.find(text)] == [
        (kind, start, start + len(value))
    ]


def test_a_value_that_is_two_kinds_is_one_finding_that_names_both() -> None:
    (found,) = DETECTOR.find(_id_that_is_a_card())
    assert (found.kind, found.also) == ("cn_resident_id", ("bank_card",))


def _id_that_is_a_card() -> str:
    """A resident ID (Gansu, 62…) whose check digit is a Luhn digit as well."""
    bodies = (f"62010119800101{n:03d}" for n in range(1000))
    numbers = (body + ric.calc_check_digit(body + "0") for body in bodies)
    return next(number for number in numbers if number.isdigit() and luhn.is_valid(number))


def test_the_longest_of_overlapping_values_wins() -> None:
    text = "13812345678@example.com"
    assert [(m.kind, m.start, m.end) for m in DETECTOR.find(text)] == [("email", 0, len(text))]


def test_a_card_after_a_number_in_the_same_rhythm_is_found() -> None:
    found = DETECTOR.find("paid 5000 4111 1111 1111 1111 twice")
    assert [(m.kind, m.start, m.end) for m in found] == [("bank_card", 10, 29)]


def test_random_digits_are_cards_as_often_as_the_luhn_digit_predicts() -> None:
    digits = random.Random(7)  # noqa: S311  # the same digits each run
    texts = [f"4{digits.randrange(10**15):015d}" for _ in range(4000)]
    hits = sum(bool(DETECTOR.find(text)) for text in texts)
    assert 0.08 < hits / len(texts) < 0.12  # 4.2 standard deviations about one in ten


def test_ids_and_hashes_of_ours_stay() -> None:
    ids = random.Random(11)  # noqa: S311  # the same ids each run
    texts = [str(uuid.UUID(int=ids.getrandbits(128))) for _ in range(2000)]
    texts += [f"{ids.getrandbits(256):064x}" for _ in range(2000)]
    assert [text for text in texts if DETECTOR.find(text)] == []


def test_the_golden_cases_come_out_span_by_span() -> None:
    if not GOLDEN.exists():
        pytest.skip("../shared/golden/pii.json is not here; it comes with the shared folder")
    cases = json.loads(GOLDEN.read_text(encoding="utf-8"))["cases"]
    found = [
        [{"kind": m.kind, "start": m.start, "end": m.end} for m in DETECTOR.find(case["text"])]
        for case in cases
    ]
    assert found == [case["findings"] for case in cases]
