"""Where everything of one installation lies on disk.

In:   the home folder (`AFTERBAY_HOME`, default `.afterbay`)
Out:  the path of every thing in it
Never: makes, reads or writes a file, but for `prepare`, which makes the folders
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  # rings are shared memory on purpose
_PRIVATE = 0o700


@dataclass(frozen=True, slots=True)
class Home:
    """One installation's folder. Made by entry points, read by everything that has files."""

    root: Path
    """The home folder; relative paths are taken from the working directory."""

    @property
    def path(self) -> Path:
        """The home folder, absolute."""
        return self.root.absolute()

    @property
    def broker(self) -> Path:
        """Embedded Kafka: data, configuration, log."""
        return self.path / "broker"

    @property
    def lake(self) -> Path:
        """Delta tables, one folder each."""
        return self.path / "lake"

    @property
    def keys(self) -> Path:
        """Key files; private ones have mode 0600."""
        return self.path / "keys"

    @property
    def vault_private(self) -> Path:
        """The vault's private key; only `reveal` reads it."""
        return self.keys / "vault.key"

    @property
    def vault_public(self) -> Path:
        """The vault's public key; every process that seals reads it."""
        return self.keys / "vault.pub"

    @property
    def policy_private(self) -> Path:
        """Signs snapshots."""
        return self.keys / "policy.key"

    @property
    def policy_public(self) -> Path:
        """Verifies snapshots."""
        return self.keys / "policy.pub"

    @property
    def pseudonym_key(self) -> Path:
        """Key of the pseudonyms of subjects and raters."""
        return self.keys / "pseudonym.key"

    @property
    def api_keys(self) -> Path:
        """Ids and SHA-256 of the API keys given out."""
        return self.keys / "api_keys.json"

    @property
    def keystore(self) -> Path:
        """SQLite file of the sealed data keys."""
        return self.path / "keystore.sqlite"

    @property
    def snapshots(self) -> Path:
        """Policy snapshots, one folder each."""
        return self.path / "snapshots"

    def snapshot(self, snapshot_id: str) -> Path:
        """Folder of one snapshot."""
        return self.snapshots / snapshot_id

    @property
    def run(self) -> Path:
        """What belongs to the processes now running: state, logs, locks."""
        return self.path / "run"

    @property
    def state(self) -> Path:
        """JSON file with addresses and process ids, written by the supervisor."""
        return self.run / "state.json"

    @property
    def supervisor_lock(self) -> Path:
        """Locked by the one supervisor of this home."""
        return self.run / "supervisor.lock"

    def log(self, process: str) -> Path:
        """Log file of one process."""
        return self.run / f"{process}.log"

    @property
    def dagster(self) -> Path:
        """DAGSTER_HOME."""
        return self.path / "dagster"

    @property
    def demo(self) -> Path:
        """Results of the demo."""
        return self.path / "demo"

    @property
    def bench(self) -> Path:
        """Results of the benchmarks."""
        return self.path / "bench"

    def ring(self, name: str) -> Path:
        """Shared-memory file of the ring `name`; two homes never share one."""
        tag = hashlib.sha256(str(self.path).encode()).hexdigest()[:16]
        if SHARED_MEMORY.is_dir():
            return SHARED_MEMORY / f"afterbay-{tag}-{name}.ring"
        return self.run / f"{name}.ring"

    def prepare(self) -> None:
        """Make the folders, readable by the owner alone. Safe to repeat."""
        for folder in (self.path, self.run, self.keys, self.lake, self.snapshots, self.broker):
            folder.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
