"""What the demo is told by its environment.

In:   a mapping of environment variables, at the entry point
Out:  `DemoSettings`
Refuses: values out of range, with BadSettings that names the variable
Never: is read at import
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from afterbay.schemas.environ import number, whole
from afterbay.schemas.errors import BadSettings

MAX_SECONDS = 240.0
LABELS = 200
POLICY = "bank-agent"


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoSettings:
    """One run of the demo. Made by its entry point."""

    home: Path
    """AFTERBAY_HOME (`.afterbay`)."""
    messages: Path | None = None
    """MESSAGES: a CSV to play instead of the demo's own corpus."""
    tools: Path | None = None
    """TOOLS: its tools; needed with MESSAGES."""
    held_out: Path | None = None
    """HELDOUT: messages to measure on; None: a fifth of those given, not played."""
    seed: int = 1
    """SEED: what is random in the demo comes from it."""
    shuffle: bool = False
    """SHUFFLE_REWARDS: opinions go to other inferences, the gate is off; nothing may be learned."""
    keep: bool = False
    """KEEP: leave everything running at the end."""
    rate: float = 25.0
    """RATE: messages a second."""
    seconds: float = MAX_SECONDS
    """SECONDS of play, at most 240."""
    least_trainings: int = 3
    """TRAININGS that a run must see to succeed."""
    env: Mapping[str, str]
    """The whole environment; what the platform is started with."""

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> DemoSettings:
        """Read `environ`; BadSettings for a value out of range."""
        found = cls(
            home=Path(environ.get("AFTERBAY_HOME") or ".afterbay").absolute(),
            messages=_path(environ, "MESSAGES"),
            tools=_path(environ, "TOOLS"),
            held_out=_path(environ, "HELDOUT"),
            seed=whole(environ, "SEED", 1, 0, 2**31 - 1),
            shuffle=_flag(environ, "SHUFFLE_REWARDS"),
            keep=_flag(environ, "KEEP"),
            rate=number(environ, "RATE", 25.0, 0.1, 1_000),
            seconds=number(environ, "SECONDS", MAX_SECONDS, 1, MAX_SECONDS),
            least_trainings=whole(environ, "TRAININGS", 3, 0, 1_000),
            env=dict(environ),
        )
        if (found.messages is None) != (found.tools is None):
            raise BadSettings("MESSAGES and TOOLS go together: set both or neither")
        if found.held_out is not None and found.messages is None:
            raise BadSettings("HELDOUT needs MESSAGES and TOOLS")
        return found

    @property
    def out(self) -> Path:
        """Folder of the results."""
        return self.home / "demo"

    def platform_env(self) -> dict[str, str]:
        """The environment the platform is started with: what the user set wins."""
        ours = {
            "AFTERBAY_PARTITIONS": "4",
            "AFTERBAY_FLUSH_S": "1",
            "AFTERBAY_CANARY_S": "20",
            "AFTERBAY_POLICY": POLICY,
            "AFTERBAY_TRAIN_SEED": str(self.seed),
        }
        forced = {"AFTERBAY_HOME": str(self.home)}
        if self.shuffle:
            forced["AFTERBAY_GATE"] = "off"
        return {**ours, **self.env, **forced}


def _path(environ: Mapping[str, str], name: str) -> Path | None:
    text = environ.get(name)
    if not text:
        return None
    if not Path(text).is_file():
        raise BadSettings(f"{name}={text}: no such file")
    return Path(text).absolute()


def _flag(environ: Mapping[str, str], name: str) -> bool:
    text = environ.get(name) or "0"
    if text not in ("0", "1"):
        raise BadSettings(f"{name}={text}: expected 1 or nothing")
    return text == "1"
