"""Dagster as three processes beside the loop: code server, daemon, web.

In:   the home, the port of the UI, settings of the loop
Out:  `dagster.yaml` (`prepare_dagster`; one that was taken over by hand is left alone) and
      `workspace.yaml` in DAGSTER_HOME, and how the processes are run (`dagster_specs`)
Refuses: nothing here; Dagster says itself what it does not like, in its log
Never: imports Dagster; a slow or dead orchestrator leaves serving alone

Three processes over one gRPC code server need 334 MB and 2 % of a core when idle; `dagster dev`
needs half more and leaves servers behind when it is stopped in mid-run.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path

from afterbay.platform.home import Home
from afterbay.platform.processes import ProcessSpec, accepts, free_port
from afterbay.schemas.errors import Unavailable

CODE, DAEMON, WEB = "dagster-code", "dagster-daemon", "dagster-web"
LOCATION = "afterbay"
"""Name of the code location. Sensor cursors belong to it, so it never changes."""
DEFINITIONS = "afterbay.dagster_defs.definitions"
HOST = "127.0.0.1"
_MIGRATE_S = 120.0

INSTANCE = """\
# Written by afterbay at every start. Remove this line to keep what you change below.
telemetry: {enabled: false}
nux: {enabled: false}
run_coordinator:
  module: dagster.core.run_coordinator
  class: QueuedRunCoordinator
  config: {dequeue_interval_seconds: 1}
# one trainer at a time (its pool); a second run may judge a canary or tend tables meanwhile
concurrency:
  runs: {max_concurrent_runs: 2}
  pools: {granularity: op, default_limit: 1}
run_monitoring:
  enabled: true
  poll_interval_seconds: 5
  start_timeout_seconds: 60
  cancel_timeout_seconds: 30
  free_slots_after_run_end_seconds: 5
# a sensor ticks every few seconds for ever; nobody reads the ticks of last week
retention:
  sensor: {purge_after_days: {skipped: 1, failure: 30, success: 30}}
"""
_OURS = INSTANCE.splitlines()[0]
WORKSPACE = """\
# Written by afterbay at every start: the port is that of the code server of this very start.
load_from:
  - grpc_server: {{host: {host}, port: {port}, location_name: {location}}}
"""


def prepare_dagster(home: Home) -> None:
    """Write `dagster.yaml`, and make Dagster's database on first use or after an upgrade.

    Alone and before everything else: processes that find an empty DAGSTER_HOME at once all migrate
    it, and one of them dies of that.
    """
    home.dagster.mkdir(mode=0o700, parents=True, exist_ok=True)
    _write_instance(home.dagster / "dagster.yaml")
    done = home.dagster / f".prepared-{version('dagster')}"
    if done.exists():
        return
    made = subprocess.run(
        (sys.executable, "-P", "-m", "dagster", "instance", "migrate"),
        env=_environment(home, os.environ),
        capture_output=True,
        text=True,
        timeout=_MIGRATE_S,
        check=False,
    )
    if made.returncode != 0:
        raise Unavailable(
            f"Dagster's database in {home.dagster} cannot be made (exit code {made.returncode}): "
            f"{made.stderr.strip().splitlines()[-1:]}; remove that folder to begin anew, it holds "
            "runs and ticks but no events"
        )
    done.touch()


def dagster_specs(
    home: Home, port: int, env: Mapping[str, str], after: tuple[str, ...] = ()
) -> list[ProcessSpec]:
    """Code server, daemon and web, in the order they start; writes `workspace.yaml` for them.

    `port` is the UI's; `env` are the settings of the loop (AFTERBAY_…), which runs inherit;
    `after` names what must be ready before.
    """
    code_port = free_port()
    workspace = workspace_file(home)
    home.dagster.mkdir(mode=0o700, parents=True, exist_ok=True)
    workspace.write_text(
        WORKSPACE.format(host=HOST, port=code_port, location=LOCATION), encoding="utf-8"
    )
    environment = _environment(home, env)
    return [
        _spec(
            CODE,
            _code_server(code_port),
            environment,
            after,
            lambda: accepts(code_port),
            # runs are its children: they end with it, and the trainer they started too
            stop_group=True,
        ),
        _spec(
            DAEMON,
            _python("dagster._daemon", "run", "-w", str(workspace)),
            environment,
            (CODE,),
            None,
        ),
        _spec(
            WEB,
            _python("dagster_webserver", "-h", HOST, "-p", str(port), "-w", str(workspace)),
            environment,
            (CODE, DAEMON),
            lambda: answers(port),
        ),
    ]


def workspace_file(home: Home) -> Path:
    """The workspace that daemon and web read."""
    return home.dagster / "workspace.yaml"


def answers(port: int) -> bool:
    """Whether Dagster's web server on `port` answers."""
    address = f"http://{HOST}:{port}/server_info"
    try:
        with urllib.request.urlopen(address, timeout=2.0) as reply:  # our own http address
            return bool(reply.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _write_instance(file: Path) -> None:
    if file.exists() and not file.read_text(encoding="utf-8").startswith(_OURS):
        return
    file.write_text(INSTANCE, encoding="utf-8")


def _spec(
    name: str,
    command: tuple[str, ...],
    env: Mapping[str, str],
    after: tuple[str, ...],
    ready: Callable[[], bool] | None,
    *,
    stop_group: bool = False,
) -> ProcessSpec:
    return ProcessSpec(
        name=name,
        command=(*_politely(), *command),
        env=env,
        ready=ready,
        after=after,
        stop_group=stop_group,
    )


def _code_server(port: int) -> tuple[str, ...]:
    return _python(
        "afterbay.dagster_defs.serve",
        *("api", "grpc", "-h", HOST, "-p", str(port), "-m", DEFINITIONS),
        *("--location-name", LOCATION),
        # else runs are started by whatever `dagster` lies on PATH
        "--use-python-environment-entry-point",
    )


def _politely() -> tuple[str, ...]:
    """Training yields the processor to serving, wherever `nice` is at hand."""
    return ("nice", "-n", "10") if shutil.which("nice") else ()


def _python(module: str, *args: str) -> tuple[str, ...]:
    return (sys.executable, "-P", "-m", module, *args)


def _environment(home: Home, env: Mapping[str, str]) -> dict[str, str]:
    return {**env, "DAGSTER_HOME": str(home.dagster), "AFTERBAY_HOME": str(home.path)}
