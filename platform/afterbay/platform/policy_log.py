"""What scheduler and nodes ask of a follower of the policy topics.

In:   -
Out:  `PolicyLog`, the port; `streams.follow.Follower` is the real one
"""

from __future__ import annotations

from typing import Protocol

from afterbay.streams.follow import Followed


class PolicyLog(Protocol):
    """Events as a follower gives them; `streams.follow.Follower` is the real one."""

    @property
    def caught_up(self) -> bool:
        """True once the end was reached."""
        ...

    def poll(self, timeout_s: float) -> list[Followed]:
        """What arrived."""
        ...

    def close(self) -> None:
        """Let go."""
        ...
