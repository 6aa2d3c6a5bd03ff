"""What the processes of `platform` are told by their environment.

In:   a mapping of environment variables, at entry points only
Out:  Settings
Refuses: a value out of its range (BadSettings, naming the variable, what it must be and why)
Never: is read at import
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from afterbay.platform.home import Home
from afterbay.schemas.environ import number, whole
from afterbay.schemas.errors import BadSettings

DEFAULT_HOME = ".afterbay"
DEFAULT_BOOTSTRAP = "127.0.0.1:9092"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of one installation's processes. Made by entry points."""

    home: Home
    """AFTERBAY_HOME (`.afterbay`)."""
    bootstrap: str = DEFAULT_BOOTSTRAP
    """AFTERBAY_BOOTSTRAP: Kafka's address. If a person sets it, no broker is started."""
    prefix: str = ""
    """AFTERBAY_TOPIC_PREFIX: before every physical topic, group and transactional id."""
    partitions: int = 12
    """AFTERBAY_PARTITIONS of each topic that has more than one; never changed afterwards."""
    flush_s: float = 10.0
    """AFTERBAY_FLUSH_S: seconds between two commits of the sink."""
    reward_wait_s: float = 86_400.0
    """AFTERBAY_REWARD_WAIT_S: after that an inference without feedback gets the default reward."""
    policy: str = "bank-agent"
    """AFTERBAY_POLICY: name of the policy served and trained."""
    gateway_port: int = 8080
    """AFTERBAY_GATEWAY_PORT."""
    scheduler: str = ""
    """AFTERBAY_SCHEDULER: the scheduler's ZeroMQ address; set by the supervisor."""
    nodes: Mapping[str, str]
    """AFTERBAY_NODES: `node-1=address,node-2=address`; set by the supervisor."""
    node_id: str = ""
    """AFTERBAY_NODE_ID: which of the nodes this process is."""
    metrics_port: int = 0
    """AFTERBAY_METRICS_PORT of this agent's own /health and /metrics; 0: any free one."""

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Settings:
        """Read `environ`; BadSettings for a value out of range."""
        return cls(
            home=Home(Path(environ.get("AFTERBAY_HOME") or DEFAULT_HOME)),
            bootstrap=environ.get("AFTERBAY_BOOTSTRAP") or DEFAULT_BOOTSTRAP,
            prefix=environ.get("AFTERBAY_TOPIC_PREFIX", ""),
            partitions=whole(environ, "AFTERBAY_PARTITIONS", 12, 1, 10_000),
            flush_s=number(environ, "AFTERBAY_FLUSH_S", 10, 0.05, 3_600),
            reward_wait_s=number(environ, "AFTERBAY_REWARD_WAIT_S", 86_400, 0, 30 * 86_400),
            policy=environ.get("AFTERBAY_POLICY") or "bank-agent",
            gateway_port=whole(environ, "AFTERBAY_GATEWAY_PORT", 8080, 0, 65_535),
            scheduler=environ.get("AFTERBAY_SCHEDULER", ""),
            nodes=_pairs(environ, "AFTERBAY_NODES"),
            node_id=environ.get("AFTERBAY_NODE_ID", ""),
            metrics_port=whole(environ, "AFTERBAY_METRICS_PORT", 0, 0, 65_535),
        )


def _pairs(environ: Mapping[str, str], name: str) -> dict[str, str]:
    pairs = [part.partition("=") for part in environ.get(name, "").split(",") if part.strip()]
    if not all(key.strip() and value.strip() for key, _, value in pairs):
        raise BadSettings(f"{name}: expected `node-1=address,node-2=address`")
    return {key.strip(): value.strip() for key, _, value in pairs}
