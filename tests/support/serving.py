"""Gateway, scheduler, nodes and flusher as processes, with a small policy really trained."""

from __future__ import annotations

import asyncio
import http.client
import json
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from openai import OpenAI

from afterbay.platform import apikeys
from afterbay.platform.home import Home
from afterbay.platform.ring import L1, discard
from afterbay.schemas import ids
from afterbay.schemas.events import Event
from afterbay.streams.arms import Action
from afterbay.streams.follow import Follower
from afterbay.streams.kafka import KafkaAddress
from afterbay.streams.publishing import publish
from afterbay.streams.signing import Ed25519Signer, Ed25519Verifier, ensure_policy_keys
from afterbay.streams.snapshots import (
    Manifest,
    read_manifest,
    seal_snapshot,
    snapshot_event,
    uri_of,
)
from afterbay.trainers.imitation import ImitationSettings, learn
from afterbay.trainers.labelled import Labelled
from afterbay.trainers.policy import LocalPolicy, save_policy
from tests.support.agents import Agents, wait_until

POLICY = "bank-agent"
TOOLS = ("card_block", "card_delivery", "pin_reset")
LABELS = (
    Labelled("I lost my card", "card_block"),
    Labelled("where is my new card", "card_delivery"),
    Labelled("I forgot my pin", "pin_reset"),
    Labelled("我的卡丢了", "card_block"),
)
NODES = ("node-1", "node-2")


def small_policy(seed: int) -> LocalPolicy:
    """A policy that knows four messages."""
    settings = ImitationSettings(vocabulary=400, steps=60)
    return learn(LABELS, [label.text for label in LABELS], TOOLS, seed, settings)


def offered() -> list[dict[str, Any]]:
    """The tools as the OpenAI API takes them."""
    return [{"type": "function", "function": {"name": name, "parameters": {}}} for name in TOOLS]


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass
class Serving:
    """One installation's serving side."""

    agents: Agents
    port: int = field(default_factory=free_port)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    key: str = ""

    @property
    def home(self) -> Home:
        """Its home."""
        return Home(self.agents.home)

    @property
    def log(self) -> KafkaAddress:
        """Its event log."""
        return self.agents.log

    @property
    def base(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    def start(self, name: str) -> None:
        """Start one process, or start it again."""
        kind = "node" if name.startswith("node-") else name
        self.processes[name] = self.agents.start(kind, AFTERBAY_NODE_ID=name)

    def kill(self, name: str) -> None:
        """End it as a crash would."""
        self.processes[name].kill()
        self.processes[name].wait()

    def client(self, key: str = "") -> OpenAI:
        """The official client."""
        return OpenAI(
            base_url=f"{self.base}/v1", api_key=key or self.key, max_retries=0, timeout=10
        )

    def ask(self, text: str = "I lost my card", **options: Any) -> Any:
        """One answer."""
        with self.client() as client:
            return _asked(client, text, **options)

    def stream(self, text: str, **options: Any) -> Iterator[Any]:
        """One answer, chunk by chunk; closing it makes the client leave."""
        with self.client() as client, _asked(client, text, stream=True, **options) as chunks:
            yield from chunks

    def post(self, path: str, body: bytes | dict[str, Any], **headers: str) -> tuple[int, Any, Any]:
        """Status, JSON body and headers of a POST, whatever the status."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"authorization": f"Bearer {self.key}", "content-type": "application/json"}
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("POST", path, data, sent | names)
            response = connection.getresponse()
            return response.status, json.loads(response.read()), response.headers
        finally:
            connection.close()

    def answers(self) -> bool:
        """True if a message is answered now."""
        try:
            self.ask()
        except Exception:  # not yet, whatever the reason
            return False
        return True

    def snapshot(self, seed: int, *actions: Action, damage: bool = False) -> Manifest:
        """Seal a new small policy and publish what happened to it."""
        snapshot_id = ids.new_id(datetime.now(UTC))
        folder = self.home.snapshots / snapshot_id
        policy = small_policy(seed)
        save_policy(folder, policy)
        manifest = seal_snapshot(
            folder,
            snapshot_id=snapshot_id,
            policy=POLICY,
            parent=None,
            tokenizer=policy.tokenizer_fingerprint,
            trained_on=None,
            metrics={},
            signer=Ed25519Signer.load(self.home.keys),
            now=datetime.now(UTC),
        )
        if damage:
            weights = folder / "policy.safetensors"
            data = bytearray(weights.read_bytes())
            data[-1] ^= 1
            weights.write_bytes(data)
        self.tell(manifest, *actions)
        return manifest

    def tell(self, manifest: Manifest, *actions: Action, split: float | None = None) -> None:
        """Publish what happened to a snapshot."""
        folder = self.home.snapshots / manifest.snapshot_id
        events = [
            snapshot_event(
                folder,
                manifest,
                action,
                event_id=ids.new_id(datetime.now(UTC)),
                uri=uri_of(folder, self.home.path),
                split=split if action == "canary" else None,
            )
            for action in actions
        ]
        publish(self.log, events, ids.new_id(datetime.now(UTC)))

    def manifest(self, snapshot_id: str) -> Manifest:
        """The manifest of a snapshot sealed before."""
        verifier = Ed25519Verifier.load(self.home.keys)
        return read_manifest(self.home.snapshots / snapshot_id, verifier)

    def events(self, *topics: str) -> list[Event]:
        """Every event of these topics so far."""
        follower = Follower(self.log, topics)
        try:
            found: list[Event] = []
            while not follower.caught_up:
                found += [followed.event for followed in follower.poll(0.2)]
            return found
        finally:
            follower.close()

    def stop(self) -> None:
        """Stop everything, the flusher last."""
        for name in ("gateway", *NODES, "scheduler", "flusher"):
            process = self.processes.get(name)
            if process is not None and process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.wait(30)


def _asked(client: OpenAI, text: str, **options: Any) -> Any:
    return client.chat.completions.create(
        model=POLICY,
        messages=[{"role": "user", "content": text}],
        tools=offered(),  # type: ignore[arg-type]  # plain dicts of the right shape
        **options,
    )


@contextmanager
def serving(home: Path, log: KafkaAddress) -> Iterator[Serving]:
    """Everything that answers a client, with one promoted snapshot, ready to answer."""
    sockets = {name: f"ipc://{home}/{name}.sock" for name in ("scheduler", *NODES)}
    settings = {
        "AFTERBAY_SCHEDULER": sockets["scheduler"],
        "AFTERBAY_NODES": ",".join(f"{name}={sockets[name]}" for name in NODES),
    }
    made = Serving(Agents(home, log, settings))
    made.agents.settings["AFTERBAY_GATEWAY_PORT"] = str(made.port)
    ensure_policy_keys(made.home.keys)
    made.key = apikeys.create(made.home.api_keys, "test", datetime.now(UTC)).text
    try:
        for name in ("flusher", "scheduler", *NODES, "gateway"):
            made.start(name)
        wait_until("the gateway listens", lambda: _listens(made.port))
        yield made
    finally:
        for process in made.processes.values():
            process.kill()
            process.wait()
        discard(made.home.ring(L1))


def _listens(port: int) -> bool:
    async def reach() -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return False
        writer.close()
        await writer.wait_closed()
        return True

    return asyncio.run(reach())
