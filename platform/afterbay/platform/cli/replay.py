"""`afterbay replay`: the events as they were stored, as JSON lines, from the archive.

In:   a time range (broker time), optionally a topic
Out:  one JSON object a line: topic, topic_id, partition, offset, ts, kind, event
Never: opens a sealed value; the log holds them encrypted
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from afterbay.platform.cli.common import HOME, HomeOption, say_json, settings_of
from afterbay.schemas.errors import BadSettings

_DAY = timedelta(days=1)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(replay)


def replay(
    begin: Annotated[
        str, typer.Option("--from", help="From this UTC date or ISO time on; default: a day ago.")
    ] = "",
    end: Annotated[
        str, typer.Option("--to", help="Up to, not including it; a date means its end.")
    ] = "",
    topic: Annotated[str, typer.Option(help="Only this topic.")] = "",
    home: HomeOption = HOME,
) -> None:
    """Print the events of a time range as JSON lines, in order of broker time."""
    from afterbay.lakehouse.archive import replay as replayed
    from afterbay.lakehouse.lake import Lake
    from afterbay.schemas.clock import SystemClock
    from afterbay.schemas.topics import TOPICS

    if topic and topic not in TOPICS:
        raise BadSettings(f"--topic: no topic {topic}; known: {', '.join(TOPICS)}")
    now = SystemClock().now()
    start = instant("--from", begin, day_end=False) if begin else now - _DAY
    stop = instant("--to", end, day_end=True) if end else now + _DAY
    lake = Lake(str(settings_of(home).home.lake))
    for row in replayed(lake, start, stop, topic or None):
        say_json(row)


def instant(option: str, text: str, *, day_end: bool) -> datetime:
    """The UTC time that `text` names; a bare date is its beginning, or with `day_end` its end."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise BadSettings(
            f"{option}: expected a date like 2026-12-31 or a time like 2026-12-31T08:00:00Z"
        ) from None
    at = at.replace(tzinfo=at.tzinfo or UTC)
    is_date = len(text) <= len("2026-12-31") and "T" not in text
    return at + _DAY if day_end and is_date else at
