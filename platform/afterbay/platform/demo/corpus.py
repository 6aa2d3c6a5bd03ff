"""The demo's own corpus: what customers of a bank write, in English and Chinese.

In:   `corpus.toml` (templates per tool and category) and a seed
Out:  distinct `Message`s, the same ones for the same seed; `tools()`
Never: a real customer's words; some messages carry made-up personal data (`personal.py`)
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from random import Random

from afterbay.platform.demo.messages import Message
from afterbay.platform.demo.personal import Planted, plant

SIZE = 7_500
"""Messages of the default corpus; a fifth is held out, 6,000 are played."""
PERSONAL_SHARE = 0.06
"""Share of messages that carry a personal value."""

_CHOICE = re.compile(r"\[([^\[\]]*)\]")
_SLOT = re.compile(r"\{(\w+)\}")
_SPACES = re.compile(r"\s+(?=[,.?!])|(?<=\s)\s+")
_CITIES = {
    "en": "Berlin,Lisbon,Leeds,Oslo,Madrid,Singapore,Toronto,Dublin,Kyoto,Milan",
    "zh": "上海,成都,深圳,杭州,西安,武汉,东京,伦敦,悉尼,首尔",
}
_MERCHANTS = {
    "en": "the supermarket,a petrol station,Bluebird Books,the hotel,Nordwind Air,a web shop,"
    "the cinema,Kaito Sushi,the pharmacy,Fern & Oak",
    "zh": "超市,加油站,蓝鸟书店,酒店,网店,电影院,药店,面馆,健身房,便利店",
}
_BANKS = {
    "en": "another bank,my old bank,the savings bank,Harbour Bank,Union Trust",
    "zh": "别的银行,工行,建行,老家的信用社,招行",
}
_CURRENCIES = {
    "en": "euros,dollars,yen,pounds,Swiss francs,Thai baht",
    "zh": "欧元,美元,日元,英镑,港币,泰铢",
}
_NAMES = {
    "en": "my landlord,my sister,a friend,my boss,the plumber",
    "zh": "房东,我妹妹,朋友,老板,同事",
}
_DEVICES = {"en": "phone,tablet,watch", "zh": "手机,平板,手表"}
_OPENERS = {
    "en": ("", "", "", "Hi, ", "Hello. ", "Quick question: ", "Hey, ", "Good morning, "),
    "zh": ("", "", "", "你好，", "请问", "在吗？", "麻烦问下，", "您好，"),
}
_CLOSERS = {
    "en": ("", "", "", ", thanks", " - please help", " Thank you", " asap", " (urgent)"),
    "zh": ("", "", "", "，谢谢", "！", "，急", "，麻烦了", "，在线等"),
}
_PERSONAL = {
    "en": {
        "phone": (" Call me on {}", " my mobile: {}"),
        "bank_card": (" The card is {}", " card number {}"),
        "email": (" Write to {}", " my mail {}"),
        "cn_resident_id": (" My Chinese ID: {}", " ID {}"),
    },
    "zh": {
        "phone": ("，我手机{}", "，电话{}联系我"),
        "bank_card": ("，卡号{}", "，银行卡{}"),
        "email": ("，邮箱{}", "，发到{}"),
        "cn_resident_id": ("，身份证{}", "，证件号{}"),
    },
}


@cache
def templates() -> Mapping[str, Mapping[str, Mapping[str, list[str]]]]:
    """tool -> category -> language -> sentence templates."""
    text = files("afterbay.platform.demo").joinpath("corpus.toml").read_text("utf-8")
    return tomllib.loads(text)


def tools() -> dict[str, list[str]]:
    """Every tool with the categories it is the right one for."""
    return {tool: [_full(tool, c) for c in categories] for tool, categories in templates().items()}


def _full(tool: str, category: str) -> str:
    """A category's name in files: what two tools both call `failed` are two categories."""
    return f"{tool}.{category}"


def make(seed: int, size: int = SIZE) -> list[Message]:
    """`size` distinct messages, categories evenly mixed; the same ones for the same seed."""
    random = Random(f"corpus:{seed}")  # noqa: S311  # a corpus must be repeatable, not secret
    kinds = [(tool, category) for tool, some in templates().items() for category in some]
    made: dict[str, Message] = {}
    while len(made) < size:
        tool, category = random.choice(kinds)
        message = _message(random, tool, category)
        made.setdefault(message.text, message)
    return list(made.values())


def _message(random: Random, tool: str, category: str) -> Message:
    language = random.choice(("en", "zh"))
    sentence = _expand(random, random.choice(templates()[tool][category][language]), language)
    text = random.choice(_OPENERS[language]) + sentence + random.choice(_CLOSERS[language])
    planted: tuple[Planted, ...] = ()
    if random.random() < PERSONAL_SHARE:
        value = plant(random)
        planted = (value,)
        text += random.choice(_PERSONAL[language][value.kind]).format(value.written)
    return Message(text=text, category=_full(tool, category), tool=tool, planted=planted)


def _expand(random: Random, template: str, language: str) -> str:
    chosen = _CHOICE.sub(lambda found: random.choice(found[1].split("|")), template)
    filled = _SLOT.sub(lambda found: _SLOTS[found[1]](random, language), chosen)
    return _SPACES.sub("", filled).strip()


def _of(lists: Mapping[str, str]) -> Callable[[Random, str], str]:
    return lambda random, language: random.choice(lists[language].split(","))


def _amount(random: Random, language: str) -> str:
    number = random.choice((random.randrange(3, 100), random.randrange(100, 5_000, 10)))
    if language == "zh":
        return random.choice((f"{number}元", f"{number}块", f"{number}块钱"))
    return random.choice((f"${number}", f"{number} euros", f"£{number}", f"{number}.50"))


def _days(random: Random, language: str) -> str:
    number = random.randrange(2, 20)
    if language == "zh":
        return random.choice((f"{number}天", f"{number}个工作日", "一星期", "好几天"))
    return random.choice((f"{number} days", f"{number} business days", "a week", "two weeks"))


def _age(random: Random, language: str) -> str:
    return str(random.randrange(6, 18))


_SLOTS: Mapping[str, Callable[[Random, str], str]] = {
    "city": _of(_CITIES),
    "merchant": _of(_MERCHANTS),
    "bank": _of(_BANKS),
    "currency": _of(_CURRENCIES),
    "name": _of(_NAMES),
    "device": _of(_DEVICES),
    "amount": _amount,
    "days": _days,
    "age": _age,
}
