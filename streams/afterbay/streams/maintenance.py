"""The agent that keeps every table quick: one round after the other over all tables.

In:   the lake
Out:  checkpoints and compacted files; numbers of what was done
Refuses: to run beside another maintainer of the same lake (Fenced)
Never: decides what is removed for good; it only rewrites what is there
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import ExitStack

from afterbay.lakehouse import tables
from afterbay.lakehouse.lake import Lake
from afterbay.lakehouse.maintenance import Maintained, MaintenanceSettings, lease, maintain
from afterbay.streams.agent import log_to_stderr, run
from afterbay.streams.metrics import Metrics
from afterbay.streams.settings import StreamSettings

log = logging.getLogger("afterbay.maintenance")


class Maintenance:
    """Agent that maintains one table a step, and pauses after the last."""

    name = "maintenance"

    def __init__(self, lake: Lake, settings: MaintenanceSettings, metrics: Metrics) -> None:
        self._lake = lake
        self._settings = settings
        self._held = ExitStack()
        self._left: list[str] = []
        self._files = metrics.counter("files_replaced", "Small files compacted away.", ("table",))
        self._checkpoints = metrics.counter("checkpoints", "Checkpoints written.", ("table",))

    def open(self) -> None:
        """Take the lease."""
        self.close()
        self._held.enter_context(lease(self._lake))

    def step(self) -> bool:
        """Maintain the next table; False after the last of a round."""
        if not self._left:
            self._left = list(tables.NAMES)
        self._note(maintain(self._lake, self._left.pop(0), self._settings))
        return bool(self._left)

    def drain(self) -> None:
        """Nothing is taken in, so nothing is left to finish."""

    def close(self) -> None:
        """Give the lease back."""
        self._held.close()

    def _note(self, done: Maintained) -> None:
        self._files.labels(done.table).inc(done.files_before)
        if done.checkpoint is not None:
            self._checkpoints.labels(done.table).inc()
        if done.files_before or done.checkpoint is not None:
            log.info(
                "%s: %d files became %d, checkpoint %s",
                done.table,
                done.files_before,
                done.files_after,
                done.checkpoint,
            )


def main(environ: Mapping[str, str]) -> int:
    """Entry point of the agent; its exit code."""
    log_to_stderr()
    settings = StreamSettings.from_env(environ)
    metrics = Metrics(Maintenance.name)
    agent = Maintenance(settings.lake, MaintenanceSettings(), metrics)
    return run(agent, settings.agent(settings.maintain_s), metrics)
