"""Start, watch and stop one child process; know who holds a lock file or a port.

In:   ProcessSpec
Out:  Child (a running process in its own group, its output appended to a log file)
Refuses: a command that cannot be found (BadSettings)
Never: leaves a child behind: it dies with its parent (leash.py), and so does its group on stop
"""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from afterbay.platform import leash
from afterbay.schemas.errors import BadSettings, Unavailable

_FLOCK = "hhqqi4x"  # struct flock on 64-bit Linux: type, whence, start, len, pid
_POLL_S = 0.02
_PORTS = (16_384, 32_768)
_PORT_TRIES = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSpec:
    """How one process is started and stopped. Made by compose code, read by the supervisor."""

    name: str
    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    """Added to the environment of the starter."""
    ready: Callable[[], bool] | None = None
    """Asked again and again until true; None: ready once started."""
    ready_timeout_s: float = 60.0
    after: tuple[str, ...] = ()
    """Names of processes that must be ready before this one starts."""
    restart: bool = True
    """Whether it is started again, with back-off, after it ended by itself."""
    stop_signal: int = signal.SIGTERM
    stop_group: bool = False
    """True: the stop signal goes to the whole process group (programs that do not pass it on)."""
    stop_timeout_s: float = 15.0
    """After that many seconds the whole group is killed."""
    cwd: Path | None = None


class Child:
    """One running process of a spec."""

    def __init__(self, spec: ProcessSpec, log: Path, environ: Mapping[str, str]) -> None:
        """Start it; its output is appended to `log`."""
        self.spec = spec
        self.log = log
        self._group_gone = False
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as out:
            self.log_start = out.tell()
            self._popen = _spawn(spec, out, {**environ, **spec.env})

    @property
    def pid(self) -> int:
        """Process id, and id of its process group."""
        return self._popen.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; -n if signal n ended it."""
        return self._popen.poll()

    def ask_to_stop(self) -> None:
        """Send the stop signal; does not wait."""
        if self.exit_code is None:
            self._send(self.spec.stop_signal, group=self.spec.stop_group)

    def stop(self) -> None:
        """Ask, wait, kill what is left of the group."""
        self.ask_to_stop()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(self.spec.stop_timeout_s)
        self.kill()

    def kill(self) -> None:
        """SIGKILL to the whole group, also when its leader has ended already. Safe to repeat."""
        if not self._group_gone:  # later its number may belong to somebody else
            self._send(signal.SIGKILL, group=True)
            self._popen.wait()
            self._group_gone = True

    def log_tail(self, lines: int = 12) -> str:
        """The last lines this very run has logged."""
        with self.log.open("rb") as source:
            source.seek(self.log_start)
            text = source.read().decode("utf-8", "replace")
        return "\n".join(text.splitlines()[-lines:])

    def _send(self, number: int, *, group: bool) -> None:
        with contextlib.suppress(ProcessLookupError):
            if group:
                os.killpg(self.pid, number)
            else:
                self._popen.send_signal(number)


def _spawn(spec: ProcessSpec, out: IO[bytes], env: dict[str, str]) -> subprocess.Popen[bytes]:
    leashed = (sys.executable, "-I", "-S", leash.__file__, str(int(spec.stop_signal)))
    try:
        return subprocess.Popen(
            [*leashed, str(os.getpid()), *spec.command],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=env,
            cwd=spec.cwd,
            start_new_session=True,  # a Ctrl-C in the terminal reaches the supervisor alone
        )
    except OSError as error:
        raise BadSettings(f"process {spec.name}: cannot be started: {error}") from error


def python_module(module: str, *args: str) -> tuple[str, ...]:
    """Command that runs `module` with this very interpreter."""
    return (sys.executable, "-P", "-m", module, *args)


def wait_until(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Ask `condition` until it is true; False if it was not within `timeout_s`."""
    end = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() >= end:
            return False
        time.sleep(_POLL_S)
    return True


def describe_exit(code: int) -> str:
    """`exit code 3`, or `signal 9 (Killed)`."""
    if code >= 0:
        return f"exit code {code}"
    return f"signal {-code} ({signal.strsignal(-code)})"


def free_port(host: str = "127.0.0.1") -> int:
    """A TCP port that nobody listens on now; below those the kernel gives to outgoing connections.

    A port above them might be taken by one of our own connections before, or between two starts of,
    the process it is meant for.
    """
    for _ in range(_PORT_TRIES):
        port = random.randrange(*_PORTS)  # noqa: S311  # any port will do
        if port_is_free(port, host):
            return port
    raise Unavailable(f"no free TCP port on {host} from {_PORTS[0]} to {_PORTS[1]}")


def port_is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Whether a server could listen on `port`."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


def accepts(port: int, host: str = "127.0.0.1") -> bool:
    """Whether somebody accepts connections on `port`."""
    try:
        with socket.create_connection((host, port), timeout=1.0):
            return True
    except OSError:
        return False


def healthy(address: str) -> bool:
    """Whether `address` (http://host:port) answers /health with 200."""
    try:
        with urllib.request.urlopen(f"{address}/health", timeout=2.0) as reply:  # noqa: S310  # our own http address
            return bool(reply.status == 200)
    except (OSError, http.client.HTTPException):
        return False


def lock_holder(path: Path) -> int | None:
    """Process id that holds a POSIX record lock on `path`; None if nobody does.

    The kernel answers, so it is right after any crash. A lock of this very process does not count.
    """
    try:
        with path.open("r+b") as handle:
            ask = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            answer = struct.unpack(_FLOCK, fcntl.fcntl(handle, fcntl.F_GETLK, ask))
    except FileNotFoundError:
        return None
    return None if answer[0] == fcntl.F_UNLCK else int(answer[4])
