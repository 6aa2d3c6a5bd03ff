"""Gateway, scheduler, nodes and flusher on a real Kafka, asked by the official OpenAI client."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Generator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from openai import AsyncOpenAI, AuthenticationError, BadRequestError, InternalServerError

from afterbay.platform.gateway.wire import MAX_BODY
from afterbay.schemas import ids
from afterbay.schemas.events import FeedbackReceived, InferenceCompleted, PolicyLoaded
from afterbay.trainers.policy import Sample, SamplingParams, load_policy
from tests.support.agents import wait_until
from tests.support.kafka import fresh_log
from tests.support.serving import POLICY, TOOLS, Serving, offered, serving

INFERENCES, FEEDBACK, LOADED = (
    "inference.completed.v2",
    "feedback.received.v2",
    "policy.loaded.v2",
)


@pytest.fixture(scope="module")
def place(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """One installation for the module; each test takes the arms as it finds them."""
    with serving(tmp_path_factory.mktemp("s"), fresh_log(kafka)) as made:
        with pytest.raises(InternalServerError) as refused:
            made.ask()
        assert refused.value.response.headers["retry-after"] == "1"
        made.snapshot(1, "published", "promoted")
        wait_until("the first answer", made.answers)
        yield made


def bare(completion_id: str) -> str:
    return completion_id.removeprefix("chatcmpl-")


def logged(place: Serving, *wanted: str) -> dict[str, InferenceCompleted]:
    """Events of these inferences, each there once."""
    found: list[InferenceCompleted] = []

    def arrived() -> bool:
        events = place.events(INFERENCES)
        found[:] = [e for e in events if isinstance(e, InferenceCompleted) and e.event_id in wanted]
        return {e.event_id for e in found} == set(wanted)

    wait_until("inference events", arrived)
    assert len(found) == len(wanted)
    return {event.event_id: event for event in found}


def test_an_answer_is_a_tool_call_and_its_event_says_how_it_came_about(place: Serving) -> None:
    answer = place.ask("I lost my card", user="p-1", logprobs=True)
    (choice,) = answer.choices
    (call,) = choice.message.tool_calls
    assert call.function.name in TOOLS
    assert choice.finish_reason == "tool_calls"
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    event = logged(place, bare(answer.id))[bare(answer.id)]
    assert event.response == call.function.name
    assert [t.name for t in event.tool_calls] == [call.function.name]
    assert [t.logprob for t in choice.logprobs.content] == pytest.approx(event.response_logprobs)
    assert event.digest == place.manifest(event.snapshot_id).digest
    assert (event.arm, event.arm_probability, event.attempt) == ("current", 1.0, 1)
    assert event.dispatched_at <= event.started_at <= event.completed_at
    assert "p-1" not in event.subject


def test_logged_log_probs_are_those_of_the_distribution_sampled_from(place: Serving) -> None:
    kinds: list[dict[str, Any]] = [{}, {"temperature": 0.7}, {"top_p": 0.8}, {"seed": 7}]
    answers = [bare(place.ask("where is my new card", **kind).id) for kind in kinds]
    for event in logged(place, *answers).values():
        policy = load_policy(place.home.snapshots / event.snapshot_id)
        sampling = SamplingParams(event.sampling.temperature, event.sampling.top_p)
        assert event.prompt_ids is not None
        assert event.response_ids is not None
        sample = Sample(event.prompt_ids, event.response_ids, event.tools, sampling)
        again = policy.log_probs(policy.prepare([sample]))[0].tolist()
        assert tuple(again) == event.response_logprobs, "the same snapshot gives ratio exactly 1"


def test_a_seed_repeats_an_answer(place: Serving) -> None:
    first, second = (place.ask("hello", seed=11) for _ in range(2))
    names = [a.choices[0].message.tool_calls[0].function.name for a in (first, second)]
    assert names[0] == names[1]


def test_a_stream_ends_with_the_call_the_reason_and_the_usage(place: Serving) -> None:
    chunks = list(place.stream("I forgot my pin", stream_options={"include_usage": True}))
    calls = [c for k in chunks if k.choices for c in k.choices[0].delta.tool_calls or ()]
    assert calls[0].function.name in TOOLS
    assert chunks[-2].choices[0].finish_reason == "tool_calls"
    assert chunks[-1].usage.completion_tokens > 0
    assert len({chunk.id for chunk in chunks}) == 1
    logged(place, bare(chunks[0].id))


def test_a_client_that_leaves_in_mid_stream_loses_no_event(place: Serving) -> None:
    stream = place.stream("I forgot my pin")
    first = next(stream)
    cast(Generator[Any, None, None], stream).close()
    logged(place, bare(first.id))


def test_many_at_once_by_the_async_client_are_all_logged_once(place: Serving) -> None:
    async def ask_all() -> list[str]:
        async with AsyncOpenAI(base_url=f"{place.base}/v1", api_key=place.key) as client:
            asked = [
                client.chat.completions.create(
                    model=POLICY,
                    messages=[{"role": "user", "content": f"card {n}"}],
                    tools=offered(),  # type: ignore[arg-type]  # plain dicts of the right shape
                )
                for n in range(60)
            ]
            return [bare(answer.id) for answer in await asyncio.gather(*asked)]

    assert len(logged(place, *asyncio.run(ask_all()))) == 60


def test_sessions_and_people_are_pseudonyms_that_stay_the_same(place: Serving) -> None:
    header = {"extra_headers": {"X-Afterbay-Session": "visit-1"}}
    metadata = {"extra_body": {"metadata": {"session_id": "visit-1"}}}
    answers = [bare(place.ask(safety_identifier="p", **way).id) for way in (header, metadata)]
    one, two = logged(place, *answers).values()
    assert one.session_id == two.session_id != "visit-1"
    assert one.subject == two.subject


def test_feedback_is_kept_before_it_is_acknowledged_and_a_retry_is_not_kept_twice(
    place: Serving,
) -> None:
    answer = place.ask()
    body = {"inference_id": answer.id, "source": "person", "rater": "r", "score": 0.5}
    sent = [place.post("/v1/feedback", body, Idempotency_Key="k-1") for _ in range(2)]
    assert [status for status, _, _ in sent] == [202, 202]
    (feedback_id,) = {reply["feedback_id"] for _, reply, _ in sent}
    early = ids.new_id(datetime.now(UTC))
    status, reply, _ = place.post("/v1/feedback", {**body, "inference_id": early})
    assert status == 202, "feedback may come before its inference is known"

    def kept() -> Counter[str]:
        events = [e for e in place.events(FEEDBACK) if isinstance(e, FeedbackReceived)]
        return Counter(e.event_id for e in events)

    wait_until("feedback events", lambda: {feedback_id, reply["feedback_id"]} <= kept().keys())
    assert kept()[feedback_id] == 1


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"score": 1.5}, 422),
        ({"score": None}, 422),
        ({"source": "oracle"}, 422),
        ({"scroe": 1}, 422),
        ({"inference_id": "chatcmpl-1"}, 422),
        ({"inference_id": ids.new_id(datetime.now(UTC) - timedelta(days=8))}, 422),
        ({"inference_id": ids.new_id(datetime.now(UTC) + timedelta(days=1))}, 422),
    ],
)
def test_feedback_that_cannot_be_used_is_refused(
    place: Serving, change: dict[str, Any], status: int
) -> None:
    good = {"inference_id": ids.new_id(datetime.now(UTC)), "source": "person", "score": 1}
    found, reply, _ = place.post("/v1/feedback", {**good, **change})
    assert found == status
    assert reply["error"]["message"]
    assert "oracle" not in reply["error"]["message"]


def test_bad_requests_are_refused_as_the_openai_api_refuses_them(place: Serving) -> None:
    with pytest.raises(BadRequestError):
        place.ask(temperature=3)
    with place.client("wrong") as stranger, pytest.raises(AuthenticationError):
        stranger.models.list()
    assert place.post("/v1/chat/completions", b"{")[0] == 400
    assert place.post("/v1/chat/completions", b" " * (MAX_BODY + 1))[0] == 413
    with place.client() as client:
        assert [model.id for model in client.models.list()] == [POLICY]


def test_a_canary_takes_its_share_of_sessions_and_each_session_keeps_its_arm(
    place: Serving,
) -> None:
    candidate = place.snapshot(2, "published")
    place.tell(candidate, "canary", split=0.5)

    def arm_of(session: str) -> str:
        return bare(place.ask(extra_headers={"X-Afterbay-Session": session}).id)

    def candidate_serves() -> bool:
        asked = [arm_of(f"s{n}") for n in range(6)]
        return any(e.arm == "candidate" for e in logged(place, *asked).values())

    wait_until("the candidate serves", candidate_serves)
    asked = {f"s{n}": [arm_of(f"s{n}") for _ in range(2)] for n in range(30)}
    events = logged(place, *(i for pair in asked.values() for i in pair))
    arms = {s: {events[i].arm for i in pair} for s, pair in asked.items()}
    assert all(len(found) == 1 for found in arms.values()), "a session keeps its arm"
    share = sum(found == {"candidate"} for found in arms.values()) / len(arms)
    assert 0.2 < share < 0.8
    for event in events.values():
        assert event.arm_probability == 0.5
        assert (event.snapshot_id == candidate.snapshot_id) == (event.arm == "candidate")
    place.tell(candidate, "promoted")


def test_a_snapshot_that_is_not_as_signed_is_not_served_and_said_so(place: Serving) -> None:
    serving_now = logged(place, bare(first := place.ask().id))[bare(first)].snapshot_id
    damaged = place.snapshot(3, "published", "promoted", damage=True)

    def told() -> list[PolicyLoaded]:
        events = [e for e in place.events(LOADED) if isinstance(e, PolicyLoaded)]
        return [e for e in events if e.snapshot_id == damaged.snapshot_id]

    wait_until("both nodes said so", lambda: len(told()) == 2)
    assert {event.error for event in told()} == {"file"}
    later = bare(place.ask().id)
    assert logged(place, later)[later].snapshot_id == serving_now
    place.tell(damaged, "rolled_back")


def test_a_rollback_of_the_current_snapshot_is_served_at_once(place: Serving) -> None:
    before = bare(place.ask().id)
    former = logged(place, before)[before].snapshot_id
    bad = place.snapshot(9, "published", "promoted")

    def served() -> str:
        asked = bare(place.ask().id)
        return str(logged(place, asked)[asked].snapshot_id)

    wait_until("the promoted one serves", lambda: served() == bad.snapshot_id)
    place.tell(bad, "rolled_back")
    # every answer is given, by one or the other: nobody waits for a snapshot to be loaded again
    wait_until("the former one serves again", lambda: served() == former)


def test_a_killed_node_is_missed_for_less_than_three_seconds(place: Serving) -> None:
    accepted = [bare(place.ask().id) for _ in range(5)]
    place.kill("node-1")
    start = time.monotonic()
    accepted.append(bare(place.ask().id))
    assert time.monotonic() - start < 3
    accepted += [bare(place.ask().id) for _ in range(5)]
    assert {e.node_id for e in logged(place, *accepted[-5:]).values()} == {"node-2"}
    place.start("node-1")
    logged(place, *accepted)


def test_a_killed_scheduler_is_whole_again_from_the_log_and_the_heartbeats(
    place: Serving,
) -> None:
    before = bare(place.ask().id)
    place.kill("scheduler")
    with pytest.raises(InternalServerError):
        place.ask()
    place.start("scheduler")
    wait_until("answers again", place.answers)
    after = bare(place.ask().id)
    events = logged(place, before, after)
    assert events[before].snapshot_id == events[after].snapshot_id


def test_everything_stops_on_sigterm_and_leaves_an_empty_ring(kafka: str, tmp_path: Path) -> None:
    with serving(tmp_path, fresh_log(kafka)) as made:
        made.snapshot(1, "published", "promoted")
        wait_until("the first answer", made.answers)
        asked = [bare(made.ask().id) for _ in range(10)]
        made.stop()
        assert {p.returncode for p in made.processes.values()} == {0}
        assert made.home.ring("l1").read_bytes().count(b"card") == 0, "freed bytes are zeroed"
        logged(made, *asked)
