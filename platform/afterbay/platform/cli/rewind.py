"""`afterbay rewind`: after a Delta RESTORE, let the sink fill the table again.

In:   a table that was restored to an older version
Out:  what moves back to where; once agreed to, one commit that says so
Refuses: while anything of this home, or a sink of its event log, runs; what
      `lakehouse.rewinding` and `streams.rewind` refuse
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from afterbay.platform.cli.common import (
    HOME,
    HomeOption,
    JsonOption,
    running,
    say,
    say_json,
    say_table,
    settings_of,
)
from afterbay.platform.state import supervising
from afterbay.schemas.errors import BadSettings, BadState
from afterbay.schemas.topics import EXPERIENCE_TABLE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from afterbay.lakehouse.lake import Lake
    from afterbay.lakehouse.rewinding import Step
    from afterbay.platform.home import Home
    from afterbay.platform.settings import Settings


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(rewind)


def rewind(
    *,
    table: Annotated[str, typer.Option(help="The table that was restored.")],
    topic: Annotated[str, typer.Option(help="Only this topic; with --partition and --to.")] = "",
    partition: Annotated[int | None, typer.Option(min=0, help="Only this partition.")] = None,
    to: Annotated[int | None, typer.Option(min=0, help="Next offset to read there.")] = None,
    to_archive: Annotated[
        bool, typer.Option("--to-archive", help="To the first archived event it lacks (default).")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Even while a sink runs.")] = False,
    home: HomeOption = HOME,
    as_json: JsonOption = False,
) -> None:
    """Move a restored table's positions back to where its rows end; the sink fills it again.

    Delta RESTORE takes rows away and keeps the positions, so that the sink would skip what is gone.
    """
    from afterbay.lakehouse.lake import Lake

    settings = settings_of(home)
    lake = Lake(str(settings.home.lake))
    by_hand = _by_hand(topic, partition, to, to_archive=to_archive)
    with _stopped(settings.home, table, force=force):
        steps = _steps(lake, table, by_hand)
        _check_kafka(settings, table, steps, force=force)
        _show(table, steps, as_json=as_json)
        if steps and (yes or typer.confirm(f"move table {table} back?", abort=True, err=as_json)):
            _apply(lake, table, steps, quiet=as_json)


def _by_hand(
    topic: str, partition: int | None, to: int | None, *, to_archive: bool
) -> tuple[str, int, int] | None:
    if topic and partition is not None and to is not None and not to_archive:
        return topic, partition, to
    if topic or partition is not None or to is not None:
        raise BadSettings(
            "expected either --topic, --partition and --to together, or none of them: then every "
            "position is computed from the rows and the archive"
        )
    return None


@contextmanager
def _stopped(home: Home, table: str, *, force: bool) -> Iterator[None]:
    """Nothing of the home runs, and nothing starts while the block does."""
    if force:
        yield
        return
    if running(home):
        raise BadState(
            f"{home.path} is running, and with it what writes table {table}; stop it first "
            "(`afterbay down`), or say --force"
        )
    with supervising(home):
        yield


def _steps(lake: Lake, table: str, by_hand: tuple[str, int, int] | None) -> tuple[Step, ...]:
    from afterbay.lakehouse.rewinding import plan, plan_to

    return plan(lake, table) if by_hand is None else plan_to(lake, table, *by_hand)


def _check_kafka(settings: Settings, table: str, steps: Sequence[Step], *, force: bool) -> None:
    """The sink reads Kafka again; experience is made from tables, so its log is not asked."""
    from afterbay.platform.broker import lent
    from afterbay.streams.kafka import KafkaAddress
    from afterbay.streams.rewind import check_readable, check_sink_stopped

    if table == EXPERIENCE_TABLE or not steps:
        return
    with lent(settings.home, settings.bootstrap, os.environ) as bootstrap:
        address = KafkaAddress(bootstrap, settings.prefix)
        if not force:
            check_sink_stopped(address)
        check_readable(address, steps)


def _apply(lake: Lake, table: str, steps: Sequence[Step], *, quiet: bool) -> None:
    from afterbay.lakehouse.rewinding import apply

    version = apply(lake, table, steps)
    if not quiet:
        say(f"table {table}: moved back in version {version}; `afterbay up` fills it again")


def _show(table: str, steps: Sequence[Step], *, as_json: bool) -> None:
    if as_json:
        say_json({"table": table, "steps": [asdict(step) for step in steps]})
    elif not steps:
        say(f"table {table} stands where its rows end; there is nothing to move back")
    else:
        say_table(
            ("topic", "partition", "stands at", "goes back to", "missing events"),
            [(s.source.topic, s.source.partition, s.held, s.to, _known(s.missing)) for s in steps],
        )


def _known(missing: int | None) -> object:
    return "not counted" if missing is None else missing
