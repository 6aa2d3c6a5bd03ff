"""Kafka messages to columns: the sink's columnar path beside the exact record path.

Both read the same messages of `inference.completed.v2` (about 0.8 kB) into Arrow, interleaved; the
rates are medians over rounds. The columnar path includes its own exactness check.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import pyarrow as pa

from afterbay.schemas import ids
from afterbay.schemas.codec import decode_record, encode
from afterbay.schemas.events import InferenceCompleted, Sampling
from afterbay.streams.columns import decode, event_columns
from tests.bench.harness import Figure, Peer

MESSAGES = 10_000
ROUNDS = 7
TOPIC = InferenceCompleted.TOPIC
PROMPT = "我上周寄出的新卡一直没有收到，麻烦帮我查一下现在到哪里了，谢谢。Please check my order."


def measure(_folder: Path) -> list[Figure]:
    """Rows a second of both paths."""
    messages: list[bytes | None] = [encode(_event(n)) for n in range(MESSAGES)]
    size = sum(len(message or b"") for message in messages) / MESSAGES
    seconds: dict[str, list[float]] = {"columns": [], "records": []}
    for _ in range(ROUNDS):
        seconds["columns"].append(_timed(lambda: decode(TOPIC, messages)))
        seconds["records"].append(_timed(lambda: _by_records(messages)))
    columns, records = (MESSAGES / median(seconds[name]) for name in ("columns", "records"))
    return [
        Figure(
            name=f"decode to Arrow, {size:.0f} B a message",
            value=columns,
            unit="rows/s",
            n=MESSAGES * ROUNDS,
            peer=Peer("record by record (fastavro)", records),
        )
    ]


def _by_records(messages: list[bytes | None]) -> pa.Table:
    return pa.Table.from_pylist([decode_record(m, TOPIC) for m in messages], event_columns(TOPIC))


def _timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _event(number: int) -> InferenceCompleted:
    now = datetime.now(UTC)
    return InferenceCompleted(
        event_id=ids.new_id(now),
        request_id=ids.new_id(now),
        attempt=1,
        session_id=f"{number % 997:032x}",
        turn=1,
        subject=f"{number % 997:032x}",
        policy="bank-agent",
        arm="current",
        arm_probability=1.0,
        snapshot_id=ids.new_id(now),
        digest="d" * 64,
        model="bank-agent",
        tokenizer="t" * 64,
        tools=tuple(f"tool_{n}" for n in range(13)),
        prompt=PROMPT,
        response="card_delivery",
        prompt_ids=tuple(range(40)),
        response_ids=(7, 8, 9),
        response_logprobs=(-0.5, -0.25, 0.0),
        loss_mask=(1, 1, 1),
        trainable=True,
        altered=False,
        sampling=Sampling(temperature=1, top_p=1, top_k=0, min_p=0, logprobs_mode="processed"),
        finish_reason="tool_calls",
        dispatched_at=now,
        started_at=now,
        completed_at=now,
        node_id="node-1",
    )
