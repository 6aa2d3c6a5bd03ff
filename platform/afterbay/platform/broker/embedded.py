"""The embedded broker: real Apache Kafka in KRaft mode, as one child process.

In:   a Home (data in `home/broker`), a port on 127.0.0.1 (0: any free one)
Out:  `bootstrap`, once `start` has returned; or a ProcessSpec for the supervisor (`prepare`)
Refuses: a data folder that another process holds (names it), a port in use, jars that are not the
      locked ones
Never: deletes data; a killed broker comes back with all of it
"""

from __future__ import annotations

import base64
import os
import subprocess
import uuid
from collections.abc import Mapping
from pathlib import Path

from afterbay.platform.broker import config, jars, reach
from afterbay.platform.home import Home
from afterbay.platform.processes import (
    Child,
    ProcessSpec,
    accepts,
    describe_exit,
    free_port,
    lock_holder,
    port_is_free,
    wait_until,
)
from afterbay.schemas.errors import BadState, Unavailable

NAME = "broker"
_FORMAT_TIMEOUT_S = 60
_STOP_TIMEOUT_S = 20.0


class EmbeddedBroker:
    """One broker of one home."""

    def __init__(
        self,
        home: Home,
        port: int = 0,
        *,
        kafka_home: Path | None = None,
        heap_mb: int = 1024,
        quick: bool = False,
    ) -> None:
        """`kafka_home`: an unpacked Apache Kafka to run instead of the pinned jars.

        `quick`: for a short life, as in tests.
        """
        self._home = home
        self._folder = home.broker
        self._asked_port = port
        self._kafka_home = kafka_home
        self._heap_mb = heap_mb
        self._quick = quick
        self._child: Child | None = None
        self.port = port

    @property
    def bootstrap(self) -> str:
        """Address for clients; its port is known after `choose_port`."""
        return f"{config.HOST}:{self.port}"

    @property
    def pid(self) -> int | None:
        """Process id of the broker that `start` started."""
        return self._child.pid if self._child else None

    def choose_port(self) -> None:
        """Fix the port, and see that it and the data folder can be had."""
        self._refuse_if_held()
        self.port = self._asked_port or self.port or free_port(config.HOST)
        self._refuse_if_port_is_taken()

    def prepare(self) -> ProcessSpec:
        """Everything but starting: checks, jars, files, storage format."""
        self.choose_port()
        class_path = jars.class_path(self._kafka_home)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        config.write_files(self._folder, self.port, free_port(config.HOST))
        if not (self._folder / "data" / "meta.properties").exists():
            self._format(class_path)
        properties = str(self._folder / "server.properties")
        return ProcessSpec(
            name=NAME,
            command=config.java_command(
                class_path,
                self._folder,
                self._heap_mb,
                "kafka.Kafka",
                properties,
                quick=self._quick,
            ),
            ready=self.is_up,
            stop_timeout_s=_STOP_TIMEOUT_S,
        )

    def start(self, environ: Mapping[str, str] | None = None) -> None:
        """Start it and return when it answers clients."""
        spec = self.prepare()
        child = Child(spec, self._home.log(NAME), os.environ if environ is None else environ)
        self._child = child
        wait_until(lambda: child.exit_code is not None or self.is_up(), spec.ready_timeout_s)
        self.check()
        if not self.is_up():
            child.kill()
            raise Unavailable(
                f"embedded broker: did not answer at {self.bootstrap} within "
                f"{spec.ready_timeout_s:g} s; its log is {child.log}:\n{child.log_tail()}"
            )

    def is_up(self) -> bool:
        """Whether it answers clients."""
        return accepts(self.port, config.HOST) and reach.is_up(self.bootstrap)

    def check(self) -> None:
        """Unavailable, saying how it ended and what to do, unless its process runs."""
        if self._child is None:
            raise Unavailable(f"embedded broker of {self._home.path}: not started")
        code = self._child.exit_code
        if code is None:
            return
        self._refuse_if_held()
        raise Unavailable(
            f"embedded broker (process {self._child.pid}, {self.bootstrap}) ended by "
            f"{describe_exit(code)}; its data are kept in {self._folder / 'data'}, so start it "
            f"again (`afterbay up`); last lines of {self._child.log}:\n{self._child.log_tail()}"
        )

    def stop(self) -> None:
        """Ask it to stop, wait, kill what is left. Safe to repeat."""
        if self._child is not None:
            self._child.stop()

    def kill(self) -> None:
        """SIGKILL, as a crash would."""
        if self._child is not None:
            self._child.kill()

    def _refuse_if_held(self) -> None:
        # Kafka itself holds a record lock on this file for as long as it uses the folder.
        holder = lock_holder(self._folder / "data" / ".lock")
        if holder is not None and (self._child is None or holder != self._child.pid):
            raise BadState(
                f"embedded broker: the data folder {self._folder / 'data'} is held by process "
                f"{holder} (a Kafka that runs already); use that one, stop it with `afterbay down` "
                f"or `kill {holder}`, or choose another --home"
            )

    def _refuse_if_port_is_taken(self) -> None:
        if not port_is_free(self.port, config.HOST):
            raise BadState(
                f"embedded broker: port {self.port} on {config.HOST} is in use by another program; "
                "stop that one (`ss -ltnp` names it), or choose another with --broker-port (0: any "
                "free one)"
            )

    def _format(self, class_path: tuple[Path, ...]) -> None:
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        properties = str(self._folder / "server.properties")
        # with `=`: one id in 64 begins with a dash, which the tool would take for another option
        arguments = (
            "kafka.tools.StorageTool",
            "format",
            f"--cluster-id={cluster}",
            "-c",
            properties,
        )
        done = subprocess.run(
            config.java_command(class_path, self._folder, 256, *arguments, quick=True),
            capture_output=True,
            text=True,
            timeout=_FORMAT_TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            raise BadState(
                f"embedded broker: its data folder {self._folder / 'data'} cannot be formatted; "
                f"is the disk full or read-only?\n{(done.stdout + done.stderr)[-2000:]}"
            )
