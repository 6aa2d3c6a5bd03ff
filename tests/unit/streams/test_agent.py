"""How an agent is run: what is drained at the end, and what is not."""

from __future__ import annotations

import signal
from types import FrameType

from afterbay.schemas.errors import OutcomeUnknown
from afterbay.streams.agent import EXIT_OK, AgentSettings, Runner, StopFlag


class Losing:
    """An agent whose first step has an unknown outcome, while it is told to stop."""

    name = "losing"

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.runner = Runner(self, AgentSettings())

    def open(self) -> None:
        self.calls.append("open")

    def step(self) -> bool:
        self.calls.append("step")
        self.runner.stop()
        raise OutcomeUnknown("losing: who knows")

    def drain(self) -> None:
        self.calls.append("drain")

    def close(self) -> None:
        self.calls.append("close")


def test_an_agent_that_does_not_know_where_it_stands_is_not_drained() -> None:
    agent = Losing()
    assert agent.runner.run() == EXIT_OK
    assert agent.calls == ["open", "step", "close", "close"]


def test_a_signal_that_interrupts_the_wait_anywhere_ends_it() -> None:
    """An Event hung here: its lock was held by the wait that the handler interrupted."""
    flags = [StopFlag()]

    def stop(_number: int, _frame: FrameType | None) -> None:
        flags[0].set()

    before = signal.signal(signal.SIGALRM, stop)
    try:
        for turn in range(2_000):
            flags[0] = StopFlag()
            signal.setitimer(signal.ITIMER_REAL, 1e-6 * (turn % 40 + 5))
            while not flags[0].is_set():
                flags[0].wait(1e-5)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
