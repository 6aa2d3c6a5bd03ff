"""Stream agents as the processes they are in production, on a test's own log and home."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from afterbay.lakehouse import tables
from afterbay.lakehouse.lake import Lake
from afterbay.lakehouse.prove import prove
from afterbay.streams.kafka import KafkaAddress
from afterbay.streams.keys import ensure_keys

PATIENCE_S = 60.0


def wait_until(what: str, condition: Callable[[], bool], within_s: float = PATIENCE_S) -> None:
    """Return as soon as `condition` holds; fail naming `what` if it does not in time."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {within_s:g} s"
        time.sleep(0.05)


@dataclass
class Agents:
    """One home and one log, and the agents a test starts on them."""

    home: Path
    log: KafkaAddress
    settings: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        (self.home / "run").mkdir(parents=True, exist_ok=True)
        tables.ensure(self.lake)
        ensure_keys(self.home / "keys")

    @property
    def lake(self) -> Lake:
        """The home's tables."""
        return Lake(str(self.home / "lake"))

    @property
    def hits(self) -> list[str]:
        """Crash points that were hit so far."""
        report = self.home / "crash"
        return report.read_text().split() if report.exists() else []

    def start(self, name: str, crash_at: str = "", **extra: str) -> subprocess.Popen[bytes]:
        """One agent, as the supervisor starts it; `extra` is its own environment."""
        environ = {
            **os.environ,
            "AFTERBAY_HOME": str(self.home),
            "AFTERBAY_BOOTSTRAP": self.log.bootstrap,
            "AFTERBAY_TOPIC_PREFIX": self.log.prefix,
            "AFTERBAY_FLUSH_S": "0.3",
            "AFTERBAY_GAP_S": "1",
            "AFTERBAY_POLL_S": "0.1",
            **self.settings,
            **extra,
        }
        if crash_at:
            environ |= {
                "AFTERBAY_CRASH_AT": crash_at,
                "AFTERBAY_CRASH_REPORT": str(self.home / "crash"),
            }
        with (self.home / "run" / f"{name}.log").open("ab") as out:
            return subprocess.Popen(
                [sys.executable, "-m", "afterbay.platform.agents", name],
                env=environ,
                stdout=out,
                stderr=out,
            )

    @contextmanager
    def running(self, *names: str) -> Iterator[None]:
        """Agents that live for the block and are then stopped as the supervisor stops them."""
        started = {name: self.start(name) for name in names}
        try:
            for process in started.values():
                # a signal before it listens to signals would end it without a drain
                wait_until("an agent listens", partial(self._listens, process.pid))
            yield
            for name, process in started.items():
                assert process.poll() is None, f"{name} ended by itself: {process.returncode}"
                process.send_signal(signal.SIGTERM)
            codes = {name: process.wait(PATIENCE_S) for name, process in started.items()}
            assert set(codes.values()) <= {0}, codes
        finally:
            for process in started.values():
                end(process)

    @contextmanager
    def armed(self, name: str, fault: str, at: str) -> Iterator[subprocess.Popen[bytes]]:
        """An agent with CRASH, FAIL or FREEZE at a place; its faults are in `hits`."""
        extra = {f"AFTERBAY_{fault}_AT": at, "AFTERBAY_CRASH_REPORT": str(self.home / "crash")}
        process = self.start(name, **extra)
        try:
            yield process
        finally:
            end(process)

    @staticmethod
    def _listens(pid: int) -> bool:
        """True once the process catches SIGTERM (bit 15 of SigCgt, proc(5))."""
        status = Path(f"/proc/{pid}/status").read_text()
        caught = next(line for line in status.splitlines() if line.startswith("SigCgt"))
        return bool(int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1)

    def die(self, name: str, crash_at: str) -> None:
        """Run an agent until it kills itself at `crash_at`."""
        process = self.start(name, crash_at)
        try:
            code = process.wait(PATIENCE_S)
        finally:
            end(process)
        assert code == -signal.SIGKILL, f"{name} ended with {code} instead"
        assert self.hits[-1] == crash_at.partition(":")[0]

    def column(self, table: str, name: str) -> list[str]:
        """All values of one column."""
        found = tables.open(self.lake, table).to_pyarrow_table(columns=[name])
        values: list[str] = found.column(name).to_pylist()
        return values


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill it, whatever it does."""
    process.kill()
    process.wait()


def all_in(agents: Agents, table: str, column: str, wanted: list[str]) -> None:
    """Wait until every wanted id is in the table."""
    wait_until(
        f"{len(wanted)} rows of {table}",
        lambda: set(wanted) <= set(agents.column(table, column)),
    )


def prove_once(agents: Agents, table: str, column: str, wanted: list[str]) -> None:
    """Each wanted id is in the table once, and `prove` finds nothing."""
    assert sorted(agents.column(table, column)) == sorted(wanted)
    proof = prove(agents.lake)
    assert proof.differences == ()
    assert proof.behind[table] == 0
