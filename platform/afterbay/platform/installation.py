"""What `afterbay up` runs: from options to processes, their addresses and their environment.

In:   UpOptions, the environment
Out:  Plan: process specs, client addresses, health addresses, AFTERBAY_* variables
Refuses: a port in use, a data folder that is held (BadState)
Never: starts a process that stays
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from afterbay.platform.broker import EmbeddedBroker
from afterbay.platform.home import Home
from afterbay.platform.processes import (
    ProcessSpec,
    free_port,
    healthy,
    port_is_free,
    python_module,
)
from afterbay.platform.settings import Settings
from afterbay.schemas.errors import BadSettings, BadState

HOST = "127.0.0.1"
_LONGEST_SOCKET_PATH = 100  # of 107 bytes that a Unix socket's name may have
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS", "POLARS_MAX_THREADS")


@dataclass(frozen=True, slots=True, kw_only=True)
class UpOptions:
    """What a person asked `afterbay up` for."""

    home: Home
    gateway_port: int = 8080
    """0: any free one; so for the others."""
    broker_port: int = 9092
    dagster_port: int = 3000
    nodes: int = 2
    dagster: bool = True
    heap_mb: int = 1024
    """Of the embedded broker's JVM."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to run. Made by `plan`, run by the supervisor."""

    specs: tuple[ProcessSpec, ...]
    addresses: Mapping[str, str]
    """What clients connect to, by name: gateway, kafka, dagster."""
    metrics: Mapping[str, str]
    """http address of /health and /metrics, by process."""
    settings: Mapping[str, str]
    """AFTERBAY_* variables that all processes get."""


def plan(options: UpOptions, environ: Mapping[str, str]) -> Plan:
    """Choose ports, get the broker's jars, and list the processes."""
    home = options.home
    gateway_port = _port(options.gateway_port, "gateway", "--port")
    broker = _broker(options, environ)
    bootstrap = broker.bootstrap if broker else environ["AFTERBAY_BOOTSTRAP"]
    settings = _settings(options, environ, bootstrap, gateway_port)
    kafka = ("broker",) if broker else ()
    first = [*([broker.prepare()] if broker else []), *_jobs(settings, kafka)]
    agents, metrics = _agents(options, settings, gateway_port)
    addresses = {"gateway": f"http://{HOST}:{gateway_port}", "kafka": bootstrap}
    dagster: list[ProcessSpec] = []
    if options.dagster:
        port = _port(options.dagster_port, "Dagster", "--dagster-port")
        addresses["dagster"] = f"http://{HOST}:{port}"
        dagster = _dagster(home, port, settings)
    return Plan((*first, *agents, *dagster), addresses, metrics, settings)


def make_keys(home: Home) -> None:
    """Make the keys that are missing: vault, pseudonyms, snapshot signatures."""
    # Here and not above: `status` and `down` need no cryptography.
    from afterbay.streams.keys import ensure_keys  # noqa: PLC0415
    from afterbay.streams.signing import ensure_policy_keys  # noqa: PLC0415

    ensure_keys(home.keys)
    ensure_policy_keys(home.keys)


def _broker(options: UpOptions, environ: Mapping[str, str]) -> EmbeddedBroker | None:
    if environ.get("AFTERBAY_BOOTSTRAP"):
        return None
    kafka_home = environ.get("KAFKA_HOME")
    broker = EmbeddedBroker(
        options.home,
        options.broker_port,
        kafka_home=Path(kafka_home) if kafka_home else None,
        heap_mb=options.heap_mb,
    )
    broker.choose_port()
    return broker


def _settings(
    options: UpOptions, environ: Mapping[str, str], bootstrap: str, gateway_port: int
) -> dict[str, str]:
    given = {name: value for name, value in environ.items() if name.startswith("AFTERBAY_")}
    # Crash points are for one agent, which a test starts itself; an operator's key is nobody's
    # else, and state.json keeps what is passed on.
    private = ("AFTERBAY_CRASH_", "AFTERBAY_API_KEY")
    kept = {k: v for k, v in given.items() if not k.startswith(private)}
    if options.nodes < 1:
        raise BadSettings(f"--nodes is {options.nodes}; expected at least 1")
    names = [f"node-{number}" for number in range(1, options.nodes + 1)]
    settings = kept | {
        "AFTERBAY_HOME": str(options.home.path),
        "AFTERBAY_BOOTSTRAP": bootstrap,
        "AFTERBAY_GATEWAY_PORT": str(gateway_port),
        "AFTERBAY_SCHEDULER": _zmq_address(options.home, "scheduler"),
        "AFTERBAY_NODES": ",".join(f"{n}={_zmq_address(options.home, n)}" for n in names),
    }
    Settings.from_env(settings)  # a wrong one is refused here, before anything runs
    return settings


def _zmq_address(home: Home, name: str) -> str:
    """A Unix socket in the home, which only its owner can enter; TCP if its path is too long."""
    path = str(home.run / f"{name}.sock")
    if sys.platform == "linux" and len(path.encode()) <= _LONGEST_SOCKET_PATH:
        return f"ipc://{path}"
    return f"tcp://{HOST}:{free_port(HOST)}"


def _jobs(settings: Mapping[str, str], kafka: tuple[str, ...]) -> list[ProcessSpec]:
    return [_job("topics", settings, kafka), _job("tables", settings)]


def _job(name: str, settings: Mapping[str, str], after: tuple[str, ...] = ()) -> ProcessSpec:
    return ProcessSpec(
        name=name,
        command=python_module("afterbay.platform.prepare", name),
        env=settings,
        after=after,
        restart=False,
    )


def _agents(
    options: UpOptions, settings: Mapping[str, str], gateway_port: int
) -> tuple[list[ProcessSpec], dict[str, str]]:
    nodes = tuple(f"node-{number}" for number in range(1, options.nodes + 1))
    data = ("topics", "tables")
    afters: dict[str, tuple[str, ...]] = {
        "scheduler": ("topics",),
        **dict.fromkeys(nodes, ("topics",)),
        "flusher": ("topics",),
        "gateway": ("scheduler", *nodes, "flusher"),
        **dict.fromkeys(("sink", "rewarder", "bucketer", "maintenance"), data),
    }
    ports = {name: free_port(HOST) for name in afters} | {"gateway": gateway_port}
    metrics = {name: f"http://{HOST}:{port}" for name, port in ports.items()}
    specs = [
        _agent(name, after, {**settings, **_own(name, ports[name])}, metrics[name])
        for name, after in afters.items()
    ]
    return specs, metrics


def _own(name: str, port: int) -> dict[str, str]:
    node = {"AFTERBAY_NODE_ID": name} if name.startswith("node-") else {}
    # One thread each: the agents together are the parallelism, and more would fight for the cores.
    return {**dict.fromkeys(_THREADS, "1"), "AFTERBAY_METRICS_PORT": str(port), **node}


def _agent(name: str, after: tuple[str, ...], env: Mapping[str, str], health: str) -> ProcessSpec:
    kind = "node" if name.startswith("node-") else name
    return ProcessSpec(
        name=name,
        command=python_module("afterbay.platform.agents", kind),
        env=env,
        ready=partial(healthy, health),
        after=after,
    )


def _dagster(home: Home, port: int, settings: Mapping[str, str]) -> list[ProcessSpec]:
    # Here and not above: an installation without the orchestrator has no Dagster.
    from afterbay.platform.orchestrator import dagster_specs  # noqa: PLC0415

    after = ("topics", "tables", "dagster")
    return [_job("dagster", settings), *dagster_specs(home, port, settings, after)]


def _port(asked: int, what: str, option: str) -> int:
    if asked == 0:
        return free_port(HOST)
    if not port_is_free(asked, HOST):
        raise BadState(
            f"{what}: port {asked} on {HOST} is in use by another program; stop that one "
            f"(`ss -ltnp` names it), or choose another with {option} (0: any free one)"
        )
    return asked
