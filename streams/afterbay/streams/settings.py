"""What the agents of `streams` are told by their environment.

In:   a mapping of environment variables, at entry points only
Out:  StreamSettings
Refuses: a value out of its range (BadSettings)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from afterbay.lakehouse.lake import Lake
from afterbay.schemas.environ import number, whole
from afterbay.streams.agent import AgentSettings
from afterbay.streams.kafka import KafkaAddress


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSettings:
    """Settings of sink, rewarder, bucketer and maintenance. Made by their `main`."""

    home: Path
    """AFTERBAY_HOME (`.afterbay`), absolute."""
    address: KafkaAddress
    """AFTERBAY_BOOTSTRAP and AFTERBAY_TOPIC_PREFIX."""
    flush_s: float = 10.0
    """AFTERBAY_FLUSH_S: seconds between two commits of the sink."""
    flush_bytes: int = 16 * 1024 * 1024
    """AFTERBAY_FLUSH_BYTES: bytes of messages that make the sink commit earlier."""
    session_s: float = 10.0
    """AFTERBAY_SESSION_S: a sink silent for so long loses its partitions to the others."""
    gap_s: float = 30.0
    """AFTERBAY_GAP_S: how long a partition is quiet before its skipped offsets are recorded."""
    poll_s: float = 1.0
    """AFTERBAY_POLL_S: pause between two looks of rewarder and bucketer at their input tables."""
    reward_wait: timedelta = timedelta(hours=24)
    """AFTERBAY_REWARD_WAIT_S: after that an inference without feedback gets the default reward."""
    maintain_s: float = 20.0
    """AFTERBAY_MAINTAIN_S: pause between two rounds of maintenance."""
    metrics_port: int = 0
    """AFTERBAY_METRICS_PORT: /health and /metrics on 127.0.0.1; 0: any free one."""

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> StreamSettings:
        """Read `environ`; BadSettings for a value out of range."""
        return cls(
            home=Path(environ.get("AFTERBAY_HOME") or ".afterbay").absolute(),
            address=KafkaAddress(
                environ.get("AFTERBAY_BOOTSTRAP") or "127.0.0.1:9092",
                environ.get("AFTERBAY_TOPIC_PREFIX", ""),
            ),
            flush_s=number(environ, "AFTERBAY_FLUSH_S", 10, 0.05, 3_600),
            flush_bytes=whole(environ, "AFTERBAY_FLUSH_BYTES", 16 * 1024 * 1024, 1, 2**31),
            session_s=number(environ, "AFTERBAY_SESSION_S", 10, 1, 300),
            gap_s=number(environ, "AFTERBAY_GAP_S", 30, 0.1, 3_600),
            poll_s=number(environ, "AFTERBAY_POLL_S", 1, 0.01, 3_600),
            reward_wait=timedelta(
                seconds=number(environ, "AFTERBAY_REWARD_WAIT_S", 86_400, 0, 30 * 86_400)
            ),
            maintain_s=number(environ, "AFTERBAY_MAINTAIN_S", 20, 0.1, 86_400),
            metrics_port=whole(environ, "AFTERBAY_METRICS_PORT", 0, 0, 65_535),
        )

    @property
    def lake(self) -> Lake:
        """The tables of this home."""
        return Lake(str(self.home / "lake"))

    def agent(self, idle_s: float) -> AgentSettings:
        """How an agent that pauses `idle_s` after a step without work is run."""
        return AgentSettings(metrics_port=self.metrics_port, idle_s=idle_s)
