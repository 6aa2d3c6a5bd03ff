"""Programs of this folder: exit statuses, and no life after the process that started them."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import textwrap
from collections.abc import Mapping

import pytest

from afterbay.schemas.errors import BadState, OutcomeUnknown, Unavailable
from afterbay.trainers.command import REFUSED, TRY_AGAIN, report


def test_figures_are_one_line_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert report("p", lambda: {"n": 1, "x": None}) == 0
    assert json.loads(capsys.readouterr().out) == {"n": 1, "x": None}


@pytest.mark.parametrize(
    ("error", "status"),
    [(BadState("b"), REFUSED), (Unavailable("u"), TRY_AGAIN), (OutcomeUnknown("o"), TRY_AGAIN)],
)
def test_the_exit_status_says_whether_to_try_again(
    error: Exception, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    def work() -> Mapping[str, object]:
        raise error

    assert report("p", work) == status
    assert capsys.readouterr().err == f"p: {error}\n"


def test_a_leashed_process_ends_with_the_one_that_started_it() -> None:
    child = "from afterbay.trainers.command import leash; leash(); print('up', flush=True); input()"
    parent = textwrap.dedent(f"""
        import os, subprocess, sys
        child = subprocess.Popen([sys.executable, "-c", {child!r}], stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, text=True)
        child.stdout.readline()
        print(child.pid, flush=True)
        input()
    """)
    with subprocess.Popen(
        [sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as started:
        assert started.stdout is not None
        handle = os.pidfd_open(int(started.stdout.readline()))
        started.kill()
    try:
        # a pidfd is readable once its process has ended
        assert select.select([handle], [], [], 10)[0]
    finally:
        os.close(handle)
