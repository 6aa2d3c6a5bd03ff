"""Which modules each extra must be able to import, and what it must not bring along.

Kept beside the extras of `pyproject.toml`: an extra that grows, or a module that moves, changes
this table in the same commit.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Deployable:
    """One thing that is deployed on its own. Read by test_slim_install."""

    extra: str
    modules: tuple[str, ...]
    """Modules its processes start from."""
    forbidden: tuple[str, ...]
    """Top-level names that must not be in `sys.modules` afterwards."""


DEPLOYABLES = (
    Deployable(
        "gateway",
        ("afterbay.platform.gateway.app", "afterbay.platform.scheduler", "afterbay.platform.ring"),
        ("torch", "dagster", "deltalake", "polars", "duckdb", "pyarrow"),
    ),
    Deployable(
        "streams",
        (
            "afterbay.streams.sink",
            "afterbay.streams.rewarder",
            "afterbay.streams.bucketer",
            "afterbay.lakehouse.prove",
        ),
        ("torch", "dagster", "starlette", "zmq"),
    ),
    Deployable(
        "node",
        ("afterbay.platform.node",),
        ("dagster", "starlette", "deltalake", "polars", "duckdb", "pyarrow"),
    ),
    Deployable(
        "trainers",
        ("afterbay.trainers.train", "afterbay.trainers.evaluate", "afterbay.trainers.warmstart"),
        ("dagster", "starlette", "zmq"),
    ),
    Deployable(
        "orchestration",
        ("afterbay.dagster_defs.definitions",),
        ("torch", "zmq"),
    ),
    Deployable(
        "cli,broker",
        ("afterbay.platform.cli.app", "afterbay.platform.broker.embedded"),
        ("torch", "dagster", "starlette", "zmq", "deltalake"),
    ),
)
