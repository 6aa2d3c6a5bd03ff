"""What trainers use of an installation: its tables, its log, its keys and snapshots.

In:   the home's folder and the environment
Out:  `Home`: paths, lake, address, a logged snapshot's policy; a slice from its file
Never: opens a connection or a table by itself
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from afterbay.lakehouse.lake import Lake
from afterbay.lakehouse.slices import SliceSpec, from_json
from afterbay.schemas.errors import BadState
from afterbay.streams.kafka import KafkaAddress
from afterbay.streams.settings import StreamSettings
from afterbay.streams.signing import Ed25519Verifier
from afterbay.streams.snapshots import verify_snapshot
from afterbay.trainers.policy import LocalPolicy, load_policy


@dataclass(frozen=True, slots=True)
class Home:
    """One installation, as a trainer sees it. Made by programs."""

    root: Path
    address: KafkaAddress
    lake: Lake

    @property
    def keys(self) -> Path:
        """Keys; the policy's pair among them."""
        return self.root / "keys"

    def snapshot(self, snapshot_id: str) -> Path:
        """Folder of a snapshot."""
        return self.root / "snapshots" / snapshot_id

    def logged_policy(self, snapshot_id: str, digest: str) -> LocalPolicy | None:
        """The policy that an inference was logged with; None if its files are gone or changed."""
        folder = self.snapshot(snapshot_id)
        try:
            verify_snapshot(folder, Ed25519Verifier.load(self.keys), digest, snapshot_id)
            return load_policy(folder)
        except BadState:
            return None


def home_of(root: Path, environ: Mapping[str, str]) -> Home:
    """The installation in `root`; the log's address comes from the environment."""
    settings = StreamSettings.from_env({**environ, "AFTERBAY_HOME": str(root)})
    return Home(settings.home, settings.address, settings.lake)


def read_slice(path: Path) -> SliceSpec:
    """The slice in a file; BadState if there is none."""
    try:
        return from_json(path.read_bytes())
    except OSError as error:
        raise BadState(
            f"slice file {path.name}: {type(error).__name__}; name the JSON that a slice's plan is"
        ) from error
