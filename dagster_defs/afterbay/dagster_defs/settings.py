"""When training starts, what its gate asks, and how a canary is judged.

In:   a mapping of environment variables, when a run or a tick begins
Out:  Settings
Refuses: a value out of its range (BadSettings, naming the variable and what it must be)
Never: is read at import
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from afterbay.schemas.environ import number, switch, whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What Dagster's side of the loop is told. Made when a run or a sensor's tick begins."""

    home: Path
    """AFTERBAY_HOME (`.afterbay`), absolute."""
    bootstrap: str = "127.0.0.1:9092"
    """AFTERBAY_BOOTSTRAP: Kafka's address."""
    prefix: str = ""
    """AFTERBAY_TOPIC_PREFIX: before every physical topic and transactional id."""
    policy: str = "bank-agent"
    """AFTERBAY_POLICY: the policy that is trained."""
    train_every: int = 400
    """AFTERBAY_TRAIN_EVERY: new rewarded experiences that start a training."""
    slice_days: int = 1
    """AFTERBAY_SLICE_DAYS: days of experience that one slice looks back over."""
    max_lag: int = 20
    """AFTERBAY_MAX_LAG: experience older than that many published snapshots is dropped as stale."""
    max_age_s: float = 30 * 86_400.0
    """AFTERBAY_MAX_AGE_S: experience older than that is dropped as expired."""
    seed: int = 1
    """AFTERBAY_TRAIN_SEED: part of every slice, so that a training can be repeated bit by bit."""
    gate: bool = True
    """AFTERBAY_GATE (`on`/`off`): off lets every candidate pass, for controls alone."""
    gate_margin: float = -0.02
    """AFTERBAY_GATE_MARGIN: least SNIPS(candidate) - SNIPS(current), in reward."""
    gate_ess: float = 50.0
    """AFTERBAY_GATE_ESS: least effective sample size of both estimates, in held-out rows."""
    canary_split: float = 0.5
    """AFTERBAY_CANARY_SPLIT: share of sessions that a canary takes, from 0.01 to 0.99."""
    canary_rewards: int = 100
    """AFTERBAY_CANARY_REWARDS: rewards of the candidate that end a canary."""
    canary_s: float = 3_600.0
    """AFTERBAY_CANARY_S: seconds that end it at the latest."""
    canary_least: int = 10
    """AFTERBAY_CANARY_LEAST: an arm with fewer rewards proves nothing; the candidate goes."""
    canary_z: float = 1.645
    """AFTERBAY_CANARY_Z: standard errors by which a candidate must be worse to be rolled back."""
    fresh_s: float = 3_600.0
    """AFTERBAY_FRESH_S: age of the newest answer in the tables from which on a check warns."""
    evaluation_timeout_s: float = 3_600.0
    """AFTERBAY_EVALUATION_TIMEOUT_S: an off-policy evaluation that runs longer is ended."""

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Settings:
        """Read `environ`; BadSettings for a value out of range."""
        return cls(
            home=Path(environ.get("AFTERBAY_HOME") or ".afterbay").absolute(),
            bootstrap=environ.get("AFTERBAY_BOOTSTRAP") or "127.0.0.1:9092",
            prefix=environ.get("AFTERBAY_TOPIC_PREFIX", ""),
            policy=environ.get("AFTERBAY_POLICY") or "bank-agent",
            train_every=whole(environ, "AFTERBAY_TRAIN_EVERY", 400, 1, 10**9),
            slice_days=whole(environ, "AFTERBAY_SLICE_DAYS", 1, 1, 180),
            max_lag=whole(environ, "AFTERBAY_MAX_LAG", 20, 0, 10**6),
            max_age_s=number(environ, "AFTERBAY_MAX_AGE_S", 30 * 86_400, 1, 10**9),
            seed=whole(environ, "AFTERBAY_TRAIN_SEED", 1, 0, 2**31 - 1),
            gate=switch(environ, "AFTERBAY_GATE", True),
            gate_margin=number(environ, "AFTERBAY_GATE_MARGIN", -0.02, -1, 1),
            gate_ess=number(environ, "AFTERBAY_GATE_ESS", 50, 0, 10**9),
            canary_split=number(environ, "AFTERBAY_CANARY_SPLIT", 0.5, 0.01, 0.99),
            canary_rewards=whole(environ, "AFTERBAY_CANARY_REWARDS", 100, 1, 10**9),
            canary_s=number(environ, "AFTERBAY_CANARY_S", 3_600, 0, 10**9),
            canary_least=whole(environ, "AFTERBAY_CANARY_LEAST", 10, 2, 10**9),
            canary_z=number(environ, "AFTERBAY_CANARY_Z", 1.645, 0, 10),
            fresh_s=number(environ, "AFTERBAY_FRESH_S", 3_600, 1, 10**9),
            evaluation_timeout_s=number(environ, "AFTERBAY_EVALUATION_TIMEOUT_S", 3_600, 1, 10**9),
        )
