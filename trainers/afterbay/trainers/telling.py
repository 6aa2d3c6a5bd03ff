"""Tell whoever started a program how it goes: Dagster over Pipes, else a person on stderr.

In:   the environment; lines and figures
Out:  Dagster's event log and the asset's metadata, or stderr
Never: imports dagster; `dagster-pipes` is all that a child of it needs
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

from dagster_pipes import DAGSTER_PIPES_CONTEXT_ENV_VAR, PipesContext, open_dagster_pipes


class Told(Protocol):
    """Whoever is told."""

    def line(self, text: str) -> None:
        """One line on how it goes."""
        ...

    def figures(self, figures: Mapping[str, Any]) -> None:
        """What came out."""
        ...


class ToldPerson:
    """Lines go to stderr; figures are on stdout anyway."""

    def line(self, text: str) -> None:
        """One line on stderr."""
        print(text, file=sys.stderr)

    def figures(self, figures: Mapping[str, Any]) -> None:
        """Nothing: the program prints them."""


class ToldDagster:
    """Lines go to the run's log, figures become the asset's metadata."""

    def __init__(self, pipes: PipesContext) -> None:
        self._pipes = pipes

    def line(self, text: str) -> None:
        """One line in the run's log."""
        self._pipes.log.info(text)

    def figures(self, figures: Mapping[str, Any]) -> None:
        """Metadata of the materialized asset."""
        self._pipes.report_asset_materialization(metadata=dict(figures))


@contextmanager
def telling(environ: Mapping[str, str]) -> Iterator[Told]:
    """Whoever started this process, told for as long as the block lasts."""
    if DAGSTER_PIPES_CONTEXT_ENV_VAR not in environ:
        yield ToldPerson()
        return
    with open_dagster_pipes() as pipes:
        yield ToldDagster(pipes)
