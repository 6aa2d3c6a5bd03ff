"""Ask the agent, then say what you think of its answer.

Needs `afterbay up` and a policy (`afterbay policy warmstart …`), and:
    export AFTERBAY_URL=http://127.0.0.1:8080 AFTERBAY_KEY=$(afterbay apikey create my-app)
    python examples/ask_and_rate.py "I lost my card" lost_card exchange_rate
"""

from __future__ import annotations

import os
import sys

from openai import OpenAI


def ask(client: OpenAI, message: str, tools: list[str]) -> tuple[str, str | None]:
    """(inference id, tool called): the official client, unchanged."""
    answer = client.chat.completions.create(
        model="bank-agent",
        messages=[{"role": "user", "content": message}],
        tools=[{"type": "function", "function": {"name": name}} for name in tools],
        extra_headers={"X-Afterbay-Session": "example-session"},
        user="example-customer",
    )
    calls = answer.choices[0].message.tool_calls or []
    return answer.id, next((call.function.name for call in calls if call.type == "function"), None)


def rate(client: OpenAI, inference_id: str, score: float) -> str:
    """Send one opinion; the same Idempotency-Key again is the same feedback."""
    opinion = {"inference_id": inference_id, "source": "person", "rater": "agent-7", "score": score}
    accepted = client.post(
        "/feedback",
        body=opinion,
        cast_to=dict[str, str],
        options={"headers": {"Idempotency-Key": f"rating-of-{inference_id}"}},
    )
    return accepted["feedback_id"]


if __name__ == "__main__":
    gateway = OpenAI(
        base_url=os.environ["AFTERBAY_URL"] + "/v1", api_key=os.environ["AFTERBAY_KEY"]
    )
    text, *offered = sys.argv[1:]
    answered, called = ask(gateway, text, offered)
    print(f"{answered} called {called}")
    print(f"feedback {rate(gateway, answered, score=float(called == offered[0]))}")
