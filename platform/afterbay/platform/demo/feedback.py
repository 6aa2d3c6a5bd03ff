"""Sends opinions to `POST /v1/feedback` when they are due: late, and out of order.

In:   `Opinion`s about inferences
Out:  the feedback ids that were accepted
Refuses: nothing for good: what is not accepted after some tries is counted, by what went wrong
Never: sends an opinion twice under two keys; every try carries the opinion's Idempotency-Key

Plain `http.client` in two threads: four opinions follow each answer, and through the OpenAI
client they would cost the machine more than the answers do.
"""

from __future__ import annotations

import heapq
import http.client
import json
import threading
import time
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from afterbay.platform.demo.opinions import Opinion

SENDERS = 2
TRIES = 6
TIMEOUT_S = 10.0
_REPEAT_EVERY = 50
"""One opinion in so many is sent again under its key, as a client does that lost the answer."""


@dataclass(frozen=True, slots=True, order=True)
class Post:
    """One opinion to be sent. Ordered by the time it is due."""

    due: float
    """`time.monotonic()` seconds."""
    number: int
    """Position in the order of making; breaks ties."""
    key: str
    """Idempotency-Key."""
    body: bytes
    """JSON."""
    tries: int = 0
    """Failed tries so far."""


def body_of(inference_id: str, opinion: Opinion, given_at: datetime) -> bytes:
    """The request body of one opinion."""
    fields: dict[str, Any] = {
        "inference_id": inference_id,
        "source": opinion.source,
        "rater": opinion.rater,
        "score": opinion.score,
        "label": opinion.label,
        "comment": opinion.comment,
        "given_at": given_at.isoformat(),
    }
    return json.dumps({k: v for k, v in fields.items() if v is not None}).encode()


class FeedbackSender:
    """A queue by time, and the threads that empty it."""

    def __init__(self, address: str, api_key: str, run: str) -> None:
        parts = urlsplit(address)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        self._headers = {"Authorization": f"Bearer {api_key}", "Content-Type": "application/json"}
        self._run = run
        self._queue: list[Post] = []
        self._changed = threading.Condition()
        self._in_flight = 0
        self._made = 0
        self._closed = False
        self.accepted: set[str] = set()
        """Feedback ids the platform answered 202 with."""
        self.failed: Counter[str] = Counter()
        """Opinions given up, by what went wrong."""
        self._threads = [
            threading.Thread(target=self._work, name=f"feedback-{n}", daemon=True)
            for n in range(SENDERS)
        ]
        for thread in self._threads:
            thread.start()

    def put(self, inference_id: str, opinion: Opinion) -> None:
        """Send `opinion` after its delay."""
        due = time.monotonic() + opinion.delay_s
        given_at = datetime.fromtimestamp(time.time() + opinion.delay_s, UTC)
        body = body_of(inference_id, opinion, given_at)
        with self._changed:
            self._made += 1
            post = Post(due, self._made, f"{self._run}-{self._made}", body)
            heapq.heappush(self._queue, post)
            if self._made % _REPEAT_EVERY == 0:
                heapq.heappush(self._queue, Post(due + 1.0, self._made, post.key, body))
            self._changed.notify()

    @property
    def waiting(self) -> int:
        """Opinions not yet accepted or given up."""
        with self._changed:
            return len(self._queue) + self._in_flight

    def close(self, abandon: bool = False) -> None:
        """Stop the threads once the queue is empty, or now if `abandon`."""
        with self._changed:
            self._closed = True
            if abandon:
                self._queue.clear()
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_S)
        while (post := self._next()) is not None:
            outcome = self._send(connection, post)
            self._settle(post, outcome)
        connection.close()

    def _next(self) -> Post | None:
        """The next due post; None at the end."""
        with self._changed:
            while True:
                wait = self._queue[0].due - time.monotonic() if self._queue else None
                if wait is not None and wait <= 0:
                    self._in_flight += 1
                    return heapq.heappop(self._queue)
                if self._closed and not self._queue and not self._in_flight:
                    self._changed.notify_all()
                    return None
                self._changed.wait(wait)

    def _send(self, connection: http.client.HTTPConnection, post: Post) -> tuple[int | str, bytes]:
        try:
            connection.request(
                "POST", "/v1/feedback", post.body, {**self._headers, "Idempotency-Key": post.key}
            )
            response = connection.getresponse()
            return response.status, response.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()  # it opens again with the next request
            return type(error).__name__, b""

    def _settle(self, post: Post, outcome: tuple[int | str, bytes]) -> None:
        status, body = outcome
        accepted = _feedback_id(body) if status == 202 else None
        again = accepted is None and post.tries + 1 < TRIES and _may_pass(status)
        with self._changed:
            self._in_flight -= 1
            if accepted is not None:
                self.accepted.add(accepted)
            elif again:
                later = time.monotonic() + 0.5 * 2**post.tries
                repeat = Post(later, post.number, post.key, post.body, post.tries + 1)
                heapq.heappush(self._queue, repeat)
            else:
                self.failed[f"HTTP {status}" if isinstance(status, int) else status] += 1
            self._changed.notify()


def _feedback_id(body: bytes) -> str | None:
    try:
        found = json.loads(body)
    except ValueError:
        return None
    return found.get("feedback_id") if isinstance(found, dict) else None


def _may_pass(status: int | str) -> bool:
    return isinstance(status, str) or status == 429 or status >= 500
