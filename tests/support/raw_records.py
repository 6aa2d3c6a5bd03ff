"""Ring records as the gateway would write them, for tests of what reads the ring."""

from __future__ import annotations

from typing import Any

from afterbay.platform.records import RawFeedback, RawInference
from afterbay.schemas import ids
from afterbay.schemas.clock import from_micros, micros
from afterbay.schemas.events import Sampling, Segment

NOW_US = micros(from_micros(1_772_366_400_000_000))


def new_id(number: int = 0) -> str:
    """The `number`-th of a fixed series of event ids."""
    return ids.new_id(from_micros(NOW_US), number.to_bytes(10, "big"))


def raw_inference(number: int = 0, **fields: Any) -> RawInference:
    """An answered request; `fields` replace what they name."""
    prompt, response = "我的卡还没到", "card_arrival"
    plain: dict[str, Any] = {
        "event_id": new_id(number),
        "request_id": new_id(number + 1_000_000),
        "attempt": 1,
        "session_id": f"session-{number}",
        "turn": 1,
        "subject": f"subject-{number}",
        "policy": "bank-agent",
        "arm": "current",
        "arm_probability": 0.5,
        "snapshot_id": "snapshot-1",
        "digest": "0" * 64,
        "model": "bank-agent",
        "tokenizer": "fingerprint",
        "tools": ["card_arrival", "refund"],
        "prompt": prompt,
        "response": response,
        "prompt_ids": list(range(len(prompt))),
        "prompt_ends": list(range(1, len(prompt) + 1)),
        "response_ids": [7, 8],
        "response_ends": [5, 12],
        "response_logprobs": [-0.5, -0.25],
        "trainable": True,
        "untrainable_reason": None,
        "segments": [Segment(start=0, snapshot_id="snapshot-1")],
        "sampling": Sampling(
            temperature=1.0, top_p=1.0, top_k=0, min_p=0.0, seed=None, logprobs_mode="processed"
        ),
        "tool_calls": [],
        "finish_reason": "tool_calls",
        "dispatched_us": NOW_US,
        "started_us": NOW_US + 1_000,
        "first_token_us": NOW_US + 2_000,
        "completed_us": NOW_US + 3_000,
        "node_id": "node-1",
    }
    return RawInference(**(plain | fields))


def raw_feedback(number: int = 0, **fields: Any) -> RawFeedback:
    """An opinion about the inference of the same number."""
    plain: dict[str, Any] = {
        "event_id": new_id(number + 2_000_000),
        "inference_id": new_id(number),
        "caller": "key-1",
        "source": "person",
        "rater": "rater-1",
        "score": 1.0,
        "label": None,
        "comment": None,
        "step": None,
        "given_at_us": None,
        "idempotency_key": None,
        "subject": None,
    }
    return RawFeedback(**(plain | fields))
