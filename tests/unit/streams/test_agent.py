"""How an agent is run: what is drained at the end, and what is not."""

from __future__ import annotations

from afterbay.schemas.errors import OutcomeUnknown
from afterbay.streams.agent import EXIT_OK, AgentSettings, Runner


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
