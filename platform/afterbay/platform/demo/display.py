"""Live progress: a table that renews itself on a terminal, a line now and then elsewhere.

In:   what player, sender and watch know at the moment
Out:  text for a person
Never: slows the play: it draws once a second, in a few milliseconds
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rich.console import Console
from rich.live import Live
from rich.table import Table

from afterbay.platform.demo.feedback import FeedbackSender
from afterbay.platform.demo.player import Play
from afterbay.platform.demo.summary import percentile
from afterbay.platform.demo.watch import Seen

DRAW_S = 1.0
LINE_S = 10.0
RECENT = 500
"""Answers that the live percentiles are taken over."""

Rows = list[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Now:
    """Where the figures of the moment are found. Made by the demo."""

    planned: int
    play: Play
    sender: FeedbackSender
    seen: Seen
    started: float
    """`time.monotonic()` at the start of the play."""


def rows_of(now: Now, rate: float) -> Rows:
    """(what, figures), the same on a terminal and in a log."""
    play, seen = now.play, now.seen
    recent = [answer.latency_s * 1000 for answer in play.answers[-RECENT:]]
    failed = play.failed.total() + now.sender.failed.total()
    return [
        ("messages", f"{play.sent:,} of {now.planned:,}, {rate:.1f}/s, {failed} failed"),
        ("latency", f"p50 {_ms(percentile(recent, 0.5))}, p99 {_ms(percentile(recent, 0.99))}"),
        (
            "opinions",
            f"{len(now.sender.accepted):,} accepted, {now.sender.waiting:,} still to come",
        ),
        ("arms", _arms(seen)),
        ("training", _training(seen)),
        ("tables", _counts(seen.tables, ("inference", "feedback", "reward", "experience"))),
        ("behind", _counts(seen.behind, ("sink", "rewarder", "bucketer")) + " rows"),
    ]


def _ms(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f} ms"


def _arms(seen: Seen) -> str:
    told = []
    for arm, share in seen.arms.items():
        reward = seen.rewards.get(arm)
        mean = f", reward {reward[0]:.3f}" if reward else ""
        told.append(f"{arm} …{share['snapshot_id'][-6:]} {share['probability']:.0%}{mean}")
    return "; ".join(told) or "–"


def _training(seen: Seen) -> str:
    trained = sum(run.trainer is not None and run.snapshot_id is not None for run in seen.runs)
    now = sorted({run.job for run in seen.runs if run.under_way})
    return f"{trained} done, now {', '.join(now) or 'none'}"


def _counts(counts: dict[str, int] | dict[str, int | None], names: Iterable[str]) -> str:
    found = ((name, counts.get(name)) for name in names)
    return ", ".join(f"{name} {'?' if n is None else f'{n:,}'}" for name, n in found)


class Display:
    """Shows stages, and progress while a play runs."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = time.monotonic()

    def say(self, line: str) -> None:
        """One line, with the seconds since the beginning."""
        self._console.print(f"[{time.monotonic() - self._began:6.1f} s] {line}", markup=False)

    async def follow(self, now: Now) -> None:
        """Show `now` until cancelled."""
        if self._console.is_terminal:
            with Live(console=self._console, auto_refresh=False, transient=True) as live:
                await _again(now, DRAW_S, lambda rows: live.update(_table(rows), refresh=True))
        else:
            await _again(now, LINE_S, lambda rows: self.say(_line(rows)))

    def page(self, title: str, rows: Rows) -> None:
        """A table that stays."""
        self._console.print(_table(rows, title))


async def _again(now: Now, every_s: float, show: Callable[[Rows], None]) -> None:
    sent: deque[tuple[float, int]] = deque([(now.started, 0)], maxlen=max(2, int(10 / every_s)))
    while True:
        await asyncio.sleep(every_s)
        sent.append((time.monotonic(), now.play.sent))
        (then, before), (at, count) = sent[0], sent[-1]
        show(rows_of(now, (count - before) / (at - then)))


def _table(rows: Rows, title: str | None = None) -> Table:
    table = Table(title=title, show_header=False, box=None, title_justify="left", pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def _line(rows: Rows) -> str:
    return " | ".join(f"{name}: {figures}" for name, figures in rows)
