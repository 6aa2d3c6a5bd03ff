"""`afterbay topics`: make the topics that are missing, and show all.

In:   the broker's address
Out:  every topic of `schemas.topics`
"""

from __future__ import annotations

import typer

from afterbay.platform.cli.common import (
    HOME,
    HomeOption,
    JsonOption,
    say_json,
    say_table,
    settings_of,
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(topics)


def topics(home: HomeOption = HOME, as_json: JsonOption = False) -> None:
    """Make the topics that are missing (`made` by this call), and show all with their tables."""
    from afterbay.platform.broker import require
    from afterbay.schemas.topics import TOPICS
    from afterbay.streams.admin import ensure_topics, partitions_of
    from afterbay.streams.kafka import KafkaAddress

    settings = settings_of(home)
    require(settings.bootstrap)
    address = KafkaAddress(settings.bootstrap, settings.prefix)
    made = ensure_topics(address, settings.partitions)
    places = [place.topic for place in partitions_of(address, tuple(TOPICS))]
    rows = [
        {
            "topic": topic.name,
            "physical": address.topic(topic.name),
            "partitions": places.count(topic.name),
            "table": topic.table,
            "made": topic.name in made,
        }
        for topic in TOPICS.values()
    ]
    if as_json:
        say_json(rows)
        return
    say_table(tuple(rows[0]), [["" if v is None else v for v in row.values()] for row in rows])
