"""The topic that both sides read: inferences as a flusher that redacts nothing would send them.

In:   how many, a seed
Out:  messages of `inference.completed.v2`, about 0.8 kB each, on a topic of n partitions
Never: a real person's data; three in ten hold one made-up value with valid check digits

Texts are zh and en, a fifth of them hold a number that is nobody's (an order, a date), so that
masking by digits alone would be wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random

from confluent_kafka import Producer

from afterbay.platform.demo import personal
from afterbay.schemas import ids
from afterbay.schemas.codec import encode
from afterbay.schemas.events import InferenceCompleted, Sampling, Segment
from afterbay.streams.admin import ensure_topics
from afterbay.streams.kafka import KafkaAddress

TOPIC = InferenceCompleted.TOPIC
SUBJECTS = 20_000
PERSONAL = 0.3
"""Share of events with a personal value."""
NUMBERED = 0.2
"""Share of events with a number that is nobody's."""
_SENTENCES = (
    "我上周寄出的新卡一直没有收到，麻烦帮我查一下现在到哪里了，谢谢",
    "昨天转账的时候系统提示失败，但是钱已经扣了，请问什么时候能退回来",
    "请帮我把每日限额调高一点，我下个月要出国旅行，需要在境外使用",
    "我想知道提前还款需要多少手续费，以及办理的时候要带哪些材料",
    "Please check why my last card payment was declined at the supermarket",
    "I would like to close my savings account and move the money elsewhere",
    "The exchange rate you used yesterday does not match the one on your site",
    "How long does an international transfer to Singapore usually take",
)
_ANSWERS = ("已为您登记，请稍候。", "Your request has been forwarded.", "正在为您查询。")
_VALUES = {
    "phone": ("我的手机号是{}，请回电", "my number is {}, call me"),
    "bank_card": ("卡号是{}", "the card is {}"),
    "email": ("请发到 {} 谢谢", "write to {} please"),
    "cn_resident_id": ("身份证{}", "my id card reads {} ok"),
}
_NUMBERS = ("，订单号 {:08d}", ", order {:010d} of 2026-03-12", "，流水 {:07d}")
_TOOLS = tuple(f"tool_{n}" for n in range(9))


@dataclass(frozen=True, slots=True)
class Message:
    """One message. Made here, produced once."""

    key: bytes
    value: bytes


def messages(count: int, seed: int) -> Iterator[Message]:
    """`count` messages, the same for the same seed but for their times."""
    random = Random(seed)  # noqa: S311  # made-up data, the same every time
    now = datetime.now(UTC)
    snapshot, sampling = ids.new_id(now, random.randbytes(10)), _sampling()
    for n in range(count):
        at = now - timedelta(seconds=600) + n * timedelta(seconds=600) / count
        subject = f"{random.randrange(SUBJECTS):032x}"
        event = InferenceCompleted(
            event_id=ids.new_id(at, random.randbytes(10)),
            request_id=ids.new_id(at, random.randbytes(10)),
            attempt=1,
            session_id=subject,
            turn=1,
            subject=subject,
            policy="bank-agent",
            arm="current",
            arm_probability=1.0,
            snapshot_id=snapshot,
            digest=f"{0:064x}",
            model="bank-agent",
            tokenizer=f"{1:064x}",
            tools=_TOOLS,
            prompt=_prompt(random),
            response=random.choice(_ANSWERS),
            prompt_ids=tuple(random.choices(range(4096), k=32)),
            response_ids=(7, 8, 9),
            response_logprobs=(-0.5, -0.25, 0.0),
            loss_mask=(1, 1, 1),
            trainable=True,
            altered=False,
            segments=(Segment(start=0, snapshot_id=snapshot),),
            sampling=sampling,
            finish_reason="stop",
            dispatched_at=at,
            started_at=at,
            completed_at=at,
            node_id="node-1",
        )
        yield Message(subject.encode(), encode(event))


def produce(log: KafkaAddress, partitions: int, count: int, seed: int) -> int:
    """Make the topics of `log` and fill the one that is read; bytes of all values."""
    ensure_topics(log, partitions)
    producer = Producer(
        {
            "bootstrap.servers": log.bootstrap,
            "linger.ms": 50,
            "compression.type": "lz4",
            "partitioner": "murmur2_random",
            "queue.buffering.max.messages": 200_000,
        }
    )
    size = 0
    for message in messages(count, seed):
        _send(producer, log.topic(TOPIC), message)
        size += len(message.value)
    if producer.flush(60):
        raise RuntimeError("the broker did not take every message within 60 s")
    return size


def _send(producer: Producer, topic: str, message: Message) -> None:
    while True:
        try:
            producer.produce(topic, message.value, message.key)
        except BufferError:
            producer.poll(0.1)
        else:
            return


def _prompt(random: Random) -> str:
    parts = random.sample(_SENTENCES, 2)
    if random.random() < NUMBERED:
        parts[0] += random.choice(_NUMBERS).format(random.randrange(10**7))
    if random.random() < PERSONAL:
        planted = personal.plant(random)
        said = random.choice(_VALUES[planted.kind]).format(planted.value)
        parts.insert(random.randrange(3), said)
    return "。".join(parts)


def _sampling() -> Sampling:
    return Sampling(temperature=1, top_p=1, top_k=0, min_p=0, logprobs_mode="processed")
