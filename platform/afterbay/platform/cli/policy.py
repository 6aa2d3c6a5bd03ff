"""`afterbay policy …`: make, measure and move snapshots.

In:   a snapshot (`current`, `candidate`, an id, or a folder), messages and tools files
Out:  figures as one line of JSON; events on `policy.snapshot.v2`
Never: imports torch; training and measuring are programs of `afterbay.trainers`, run as such
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from afterbay.platform.cli.common import (
    HOME,
    HomeOption,
    JsonOption,
    say,
    say_json,
    say_table,
    settings_of,
)
from afterbay.platform.processes import python_module
from afterbay.schemas.errors import BadSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from afterbay.platform.settings import Settings
    from afterbay.schemas.events import PolicySnapshot
    from afterbay.streams.arms import ArmState
    from afterbay.streams.kafka import KafkaAddress

MessagesOption = Annotated[
    Path, typer.Option(exists=True, dir_okay=False, help="CSV with columns text,category.")
]
ToolsOption = Annotated[
    Path, typer.Option(exists=True, dir_okay=False, help="JSON: {tool: [categories]}.")
]


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(no_args_is_help=True, help="Make, measure and move policy snapshots.")
    group.command("warmstart")(warmstart)
    group.command("evaluate")(evaluate)
    group.command("list")(list_snapshots)
    group.command("rollback")(rollback)
    app.add_typer(group, name="policy")


def warmstart(
    *,
    messages: MessagesOption,
    tools: ToolsOption,
    seed: Annotated[int, typer.Option(help="Of the choice of labels and of the weights.")] = 1,
    labels: Annotated[int, typer.Option(min=1, help="Labelled messages to learn from.")] = 200,
    out: Annotated[
        Path | None, typer.Option(help="Write the files there and publish nothing.")
    ] = None,
    home: HomeOption = HOME,
) -> None:
    """Make a first snapshot from a few labels, publish and promote it (needs `afterbay up`)."""
    arguments = ["--messages", str(messages), "--tools", str(tools)]
    arguments += ["--seed", str(seed), "--labels", str(labels)]
    settings = settings_of(home)
    if out is not None:
        arguments += ["--out", str(out)]
    else:
        from afterbay.platform.broker import require

        require(settings.bootstrap)
        arguments += ["--home", str(settings.home.path), "--publish"]
    _trainer("warmstart", arguments, settings)


def evaluate(
    snapshot: Annotated[str, typer.Argument(help="current, candidate, an id, or a folder.")],
    messages: MessagesOption,
    tools: ToolsOption,
    home: HomeOption = HOME,
) -> None:
    """Measure a snapshot on labelled messages: greedy accuracy, and the reward of its samples."""
    settings = settings_of(home)
    folder = _folder(snapshot, settings)
    arguments = ["--snapshot", str(folder), "--messages", str(messages), "--tools", str(tools)]
    _trainer("evaluate", [*arguments, "--json"], settings)


def list_snapshots(home: HomeOption = HOME, as_json: JsonOption = False) -> None:
    """List the snapshots that events told of, oldest first, and what each of them does."""
    settings = settings_of(home)
    arms = _arms(settings)
    rows = [
        {
            "snapshot_id": known.snapshot_id,
            "standing": arms.standing[known.snapshot_id],
            "digest": known.digest,
            "parent": known.parent,
            "uri": known.uri,
        }
        for known in arms.snapshots.values()
    ]
    if as_json:
        say_json(rows)
        return
    columns = ("snapshot_id", "standing", "parent")
    say_table(columns, [[row[name] or "" for name in columns] for row in rows])


def rollback(
    snapshot: Annotated[
        str, typer.Argument(help="candidate (if there is one, else current), current, or an id.")
    ] = "",
    home: HomeOption = HOME,
    as_json: JsonOption = False,
) -> None:
    """Take a snapshot out of service: the one that served before it serves again."""
    from afterbay.schemas import ids
    from afterbay.schemas.clock import SystemClock
    from afterbay.streams.publishing import publish_decided
    from afterbay.streams.snapshots import next_event

    settings, clock = settings_of(home), SystemClock()
    event_id = ids.new_id(clock.now())

    def decide(arms: ArmState) -> Sequence[PolicySnapshot]:
        wanted = snapshot or ("candidate" if arms.candidate else "current")
        known = arms.snapshots[_named(wanted, arms)]
        return [next_event(known, "rolled_back", event_id=event_id)]

    run_id = f"rollback/{event_id}"
    sent = publish_decided(_address(settings), settings.policy, run_id, decide, clock)
    if as_json:
        say_json({"rolled_back": sent[0].snapshot_id, "event_id": event_id})
    else:
        say(f"rolled back: {sent[0].snapshot_id}")


def _trainer(program: str, arguments: Sequence[str], settings: Settings) -> None:
    env = {
        **os.environ,
        "AFTERBAY_HOME": str(settings.home.path),
        "AFTERBAY_BOOTSTRAP": settings.bootstrap,
        "AFTERBAY_TOPIC_PREFIX": settings.prefix,
        "AFTERBAY_POLICY": settings.policy,
    }
    command = python_module(f"afterbay.trainers.{program}", *arguments)
    raise typer.Exit(subprocess.run(command, env=env, check=False).returncode)


def _folder(snapshot: str, settings: Settings) -> Path:
    for folder in (Path(snapshot), settings.home.snapshot(snapshot)):
        if (folder / "policy.safetensors").is_file():
            return folder
    from afterbay.streams.snapshots import folder_of

    arms = _arms(settings)
    return folder_of(arms.snapshots[_named(snapshot, arms)].uri, settings.home.path)


def _named(snapshot: str, arms: ArmState) -> str:
    arm = {"current": arms.current, "candidate": arms.candidate}.get(snapshot)
    snapshot_id = arm.snapshot_id if arm else snapshot
    if snapshot_id not in arms.snapshots:
        raise BadSettings(
            f"no snapshot {snapshot!r}; expected current, candidate (if there is one), a folder, "
            "or an id that `afterbay policy list` shows"
        )
    return snapshot_id


def _arms(settings: Settings) -> ArmState:
    from afterbay.platform.broker import require
    from afterbay.schemas.clock import SystemClock
    from afterbay.streams.publishing import read_arms

    require(settings.bootstrap)
    return read_arms(_address(settings), settings.policy, SystemClock())


def _address(settings: Settings) -> KafkaAddress:
    from afterbay.streams.kafka import KafkaAddress

    return KafkaAddress(settings.bootstrap, settings.prefix)
