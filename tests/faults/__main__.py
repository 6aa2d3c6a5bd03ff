"""`python -m tests.faults`: random schedules of kills against sink, rewarder and bucketer.

In:   --schedules N --seed S [--only I] [--resume] [--together T]; AFTERBAY_HOME (`.afterbay`)
Out:  a line a schedule, a table, `<home>/faults/<seed>.jsonl` (one JSON object a schedule)
Exit: 0 if nothing was lost, doubled or wrong and every fault was hit; else 1, naming what failed
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from rich.console import Console

from afterbay.lakehouse import tables
from afterbay.lakehouse.lake import Lake
from afterbay.streams.keys import ensure_keys
from tests.faults.actors import prepare
from tests.faults.plan import draw
from tests.faults.play import Played, play
from tests.faults.results import Results, show
from tests.support.kafka import own_broker

ENOUGH = 40
"""Schedules after which every fault must have been hit."""


@dataclass(frozen=True, slots=True)
class Stage:
    """What all schedules of a run share."""

    bootstrap: str
    template: Path
    """An empty home: tables and keys."""
    homes: Path


@contextmanager
def stage(results: Path) -> Iterator[Stage]:
    """One broker and an empty home to copy."""
    with tempfile.TemporaryDirectory(prefix="broker-", dir=results) as scratch:
        template = Path(scratch) / "template"
        tables.ensure(Lake(str(template / "lake")))
        ensure_keys(template / "keys")
        with own_broker(Path(scratch)) as broker:
            yield Stage(broker.bootstrap, template, results / "homes")


def run(seed: int, numbers: Iterable[int], together: int, place: Path) -> Iterator[Played]:
    """Play schedules, some at a time; each as it ends."""
    left = iter(numbers)
    prepare()
    with stage(place) as shared, ThreadPoolExecutor(together) as pool:

        def begin(number: int) -> Future[Played]:
            folder = shared.homes / f"{seed}-{number}"
            return pool.submit(play, draw(seed, number), shared.bootstrap, shared.template, folder)

        running = {begin(number) for number in islice(left, together)}
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()
                running |= {begin(number) for number in islice(left, 1)}


def main(arguments: list[str]) -> int:
    """Run what is asked for; the exit code."""
    asked = _parse(arguments)
    place = Path(os.environ.get("AFTERBAY_HOME") or ".afterbay").absolute() / "faults"
    place.mkdir(parents=True, exist_ok=True)
    console = Console(soft_wrap=True, highlight=False)
    only = asked.only is not None
    name = f"{asked.seed}-{asked.only}" if only else f"{asked.seed}"
    results = Results(place / f"{name}.jsonl", resume=asked.resume)
    wanted = [asked.only] if only else range(asked.schedules)
    numbers = [number for number in wanted if number not in results.good]
    for played in run(asked.seed, numbers, asked.together, place):
        line = results.add(played)
        console.print(f"{len(results.lines)}/{len(wanted)} {line}", markup=False)
    enough = not only and asked.schedules >= ENOUGH
    return show(results.lines.values(), asked.seed, console, every_fault=enough)


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--schedules", type=int, default=ENOUGH, help="how many")
    parser.add_argument("--seed", type=int, default=1, help="of everything random")
    parser.add_argument("--only", type=int, help="number of the one schedule to play")
    parser.add_argument("--resume", action="store_true", help="skip those that went well before")
    parser.add_argument("--together", type=int, default=3, help="how many at a time")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
