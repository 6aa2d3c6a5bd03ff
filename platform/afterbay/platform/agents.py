"""Run one agent: from its name to the function that composes and runs it.

In:   an agent's name, the process's environment
Out:  the agent's exit code
Refuses: an unknown name (BadSettings, with the known ones)
Never: imports an agent that is not asked for: the gateway must start without torch or Delta
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import cast

from afterbay.schemas.errors import AfterbayError, BadSettings
from afterbay.schemas.faults import crash_points

Main = Callable[[Mapping[str, str]], int]

AGENTS = MappingProxyType(
    {
        "gateway": "afterbay.platform.gateway.main:main",
        "scheduler": "afterbay.platform.scheduler:main",
        "node": "afterbay.platform.node:main",
        "flusher": "afterbay.platform.flusher:main",
        "sink": "afterbay.streams.sink:main",
        "rewarder": "afterbay.streams.rewarder:main",
        "bucketer": "afterbay.streams.bucketer:main",
        "maintenance": "afterbay.streams.maintenance:main",
    }
)
"""Where each agent's `main(environ) -> exit code` is."""


def run_agent(name: str, environ: Mapping[str, str]) -> int:
    """Run the agent `name` until it ends; its exit code."""
    place = AGENTS.get(name)
    if place is None:
        raise BadSettings(f"no agent {name!r}; known agents: {', '.join(AGENTS)}")
    crash_points.arm(environ)
    module, _, function = place.partition(":")
    return cast(Main, getattr(importlib.import_module(module), function))(environ)


def main() -> int:
    """`python -m afterbay.platform.agents NAME`: what the supervisor starts."""
    try:
        return run_agent(sys.argv[1], os.environ)
    except AfterbayError as error:
        sys.stderr.write(f"{sys.argv[1]}: {error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
