"""`afterbay deadletter …`: what was refused and why; open one; send some to their topic again.

In:   table `deadletter`; for contents an operator's API key and the vault's private key
Out:  tables or JSON; messages on their topics; an `audit.access.v2` event for every attempt to open
Refuses: to open anything without the scope pii:decrypt and a reason
Never: prints contents but with `show --contents`
"""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from dataclasses import asdict
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
from afterbay.schemas.errors import BadSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from afterbay.lakehouse.deadletters import DeadLetter, Facts, Wanted
    from afterbay.lakehouse.lake import Lake
    from afterbay.platform.settings import Settings
    from afterbay.streams.kafka import KafkaAddress
    from afterbay.streams.redrive import Outcome

KeyOption = Annotated[
    str,
    typer.Option(
        envvar="AFTERBAY_API_KEY",
        help="Who asks: an API key with the scope pii:decrypt. Better given in the environment.",
    ),
]
TopicOption = Annotated[str, typer.Option(help="Only those of this topic.")]
DeadReasonOption = Annotated[str, typer.Option("--reason", help="Only those refused for this.")]


def register(app: typer.Typer) -> None:
    """Add the group."""
    group = typer.Typer(no_args_is_help=True, help="What was refused: look, open, send again.")
    group.command("list")(list_letters)
    group.command("show")(show)
    group.command("redrive")(redrive)
    app.add_typer(group, name="deadletter")


def list_letters(
    *,
    topic: TopicOption = "",
    reason: DeadReasonOption = "",
    since: Annotated[
        str, typer.Option(help="From this UTC date or ISO time on; default: all.")
    ] = "",
    limit: Annotated[int, typer.Option(min=0, help="The newest so many; 0: all.")] = 50,
    home: HomeOption = HOME,
    as_json: JsonOption = False,
) -> None:
    """List what was refused, newest first, and count it by topic and reason."""
    from afterbay.lakehouse.deadletters import Wanted, facts, summary
    from afterbay.platform.cli.replay import instant

    _check_topic(topic)
    at = instant("--since", since, day_end=False) if since else None
    wanted = Wanted(topic=topic, reason=reason, since=at)
    lake = _lake(settings_of(home))
    counts, found = summary(lake, wanted), facts(lake, wanted, limit)
    if as_json:
        names = ("topic", "reason", "count")
        counted = [dict(zip(names, row, strict=True)) for row in counts]
        say_json({"letters": [asdict(letter) for letter in found], "summary": counted})
    else:
        _show_list(found, counts)


def show(
    letter_id: Annotated[str, typer.Argument(metavar="ID", help="As `list` shows it.")],
    *,
    contents: Annotated[
        bool, typer.Option("--contents", help="Open it; needs the scope pii:decrypt and a reason.")
    ] = False,
    reason: Annotated[str, typer.Option(help="Why it is opened; goes into the audit event.")] = "",
    api_key: KeyOption = "",
    home: HomeOption = HOME,
    as_json: JsonOption = False,
) -> None:
    """Show the facts of one dead letter; with --contents what it holds, in clear."""
    from afterbay.lakehouse.deadletters import Wanted, facts, letters

    settings = settings_of(home)
    lake, wanted = _lake(settings), Wanted(ids=(letter_id,))
    (letter,) = letters(lake, wanted)
    shown = asdict(facts(lake, wanted)[0])
    if contents:
        shown["contents"] = _contents(settings, letter, api_key, reason)
    if as_json:
        say_json(shown)
    else:
        opened = shown.pop("contents", None)
        say_table(("fact", "value"), [(n, "" if v is None else v) for n, v in shown.items()])
        if opened is not None:
            say_json(opened)


def redrive(
    ids: Annotated[list[str] | None, typer.Argument(metavar="[ID]...")] = None,
    *,
    topic: TopicOption = "",
    reason: DeadReasonOption = "",
    why: Annotated[str, typer.Option(help="Why; goes into the audit event.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list them; opens none.")] = False,
    api_key: KeyOption = "",
    home: HomeOption = HOME,
    as_json: JsonOption = False,
) -> None:
    """Send dead letters to their topic again, each once however often this is run.

    Name them by id, or all of a --topic and --reason. Needs the scope pii:decrypt and --why.
    """
    from afterbay.lakehouse.deadletters import letters

    wanted = _wanted(ids or [], topic, reason)
    settings = settings_of(home)
    lake = _lake(settings)
    found = letters(lake, wanted)
    if dry_run or not found:
        done = _foreseen(settings, lake, found)
    else:
        done = _send(settings, lake, found, api_key, why)
    if as_json:
        say_json([asdict(outcome) for outcome in done])
    else:
        _show_outcomes(done)


def _wanted(ids: Sequence[str], topic: str, reason: str) -> Wanted:
    from afterbay.lakehouse.deadletters import Wanted

    if bool(ids) == bool(topic and reason) or bool(topic) != bool(reason):
        raise BadSettings("expected ids, or --topic and --reason together, and not both")
    _check_topic(topic)
    return Wanted(topic=topic, reason=reason, ids=tuple(dict.fromkeys(ids)))


def _contents(settings: Settings, letter: DeadLetter, api_key: str, reason: str) -> object:
    from afterbay.platform.reopening import Opener
    from afterbay.schemas.clock import SystemClock

    _permit(settings, "reveal", [letter], api_key, reason)
    with closing(Opener(settings.home, SystemClock())) as opener:
        return opener.contents(letter)


def _send(
    settings: Settings, lake: Lake, found: Sequence[DeadLetter], api_key: str, why: str
) -> list[Outcome]:
    from afterbay.platform.reopening import Opener
    from afterbay.schemas.clock import SystemClock
    from afterbay.streams.redrive import Redrive

    _permit(settings, "redrive", found, api_key, why)
    clock = SystemClock()
    with closing(Opener(settings.home, clock)) as opener:
        return Redrive(lake, _address(settings), opener.openers(), clock).send(found)


def _foreseen(settings: Settings, lake: Lake, found: Sequence[DeadLetter]) -> list[Outcome]:
    """What can be said without opening any."""
    from afterbay.platform.broker import require
    from afterbay.schemas.clock import SystemClock
    from afterbay.streams.redrive import BEFORE, Outcome, sent_before

    require(settings.bootstrap)
    before = sent_before(lake, _address(settings), found, SystemClock())
    return [
        Outcome(x.event_id, x.source_topic, BEFORE if x.event_id in before else "would be sent")
        for x in found
    ]


def _permit(
    settings: Settings, action: str, found: Sequence[DeadLetter], api_key: str, reason: str
) -> None:
    from afterbay.platform.access import Attempt, Guard
    from afterbay.platform.apikeys import DECRYPT
    from afterbay.platform.broker import require
    from afterbay.schemas.clock import SystemClock

    require(settings.bootstrap)
    targets = tuple(f"deadletter/{letter.event_id}" for letter in found)
    guard = Guard(settings.home.api_keys, _address(settings), SystemClock())
    guard.permit(api_key, Attempt(action=action, scope=DECRYPT, targets=targets, reason=reason))


def _show_list(found: Sequence[Facts], counts: Sequence[tuple[str, str, int]]) -> None:
    say_table(
        ("id", "time", "topic", "reason", "stage", "bytes", "redriven"),
        [
            (x.event_id, x.at, x.source_topic, x.reason, x.stage, x.bytes, x.redriven or "")
            for x in found
        ],
    )
    say("")
    say_table(("topic", "reason", "count"), counts)


def _show_outcomes(done: Sequence[Outcome]) -> None:
    say_table(
        ("id", "topic", "outcome", "why"), [(o.event_id, o.topic, o.outcome, o.why) for o in done]
    )
    counts = Counter(outcome.outcome for outcome in done)
    say(", ".join(f"{count} {name}" for name, count in counts.items()) or "no dead letter is meant")


def _check_topic(topic: str) -> None:
    from afterbay.platform.cleaning import UNKNOWN_TOPIC
    from afterbay.schemas.topics import TABLES

    known = ("", *TABLES, UNKNOWN_TOPIC)
    if topic not in known:
        raise BadSettings(f"--topic: no topic {topic}; known: {', '.join(known[1:])}")


def _lake(settings: Settings) -> Lake:
    from afterbay.lakehouse.lake import Lake

    return Lake(str(settings.home.lake))


def _address(settings: Settings) -> KafkaAddress:
    from afterbay.streams.kafka import KafkaAddress

    return KafkaAddress(settings.bootstrap, settings.prefix)
