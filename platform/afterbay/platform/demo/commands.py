"""The command `afterbay`, as a program that the demo starts.

In:   arguments, the environment of the platform
Out:  what it printed: text, one JSON document, or a JSON line at a time
Refuses: a command that fails, with `CommandFailed` and the last lines it wrote
Never: leaves a command behind: one that is cancelled is ended first
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from afterbay.schemas.errors import AfterbayError

_END_S = 10.0
_LINE_LIMIT = 64 * 1024 * 1024


class CommandFailed(AfterbayError):
    """A command of the platform ended with an error."""

    def __init__(self, command: str, told: str) -> None:
        super().__init__(f"`afterbay {command}…` {told}")
        self.command = command
        """The command and its first argument, followed by a blank."""


class Afterbay:
    """The command line of one installation."""

    def __init__(self, env: Mapping[str, str], program: str | None = None) -> None:
        """`program` is the command's path; None: the one installed beside this Python."""
        beside = Path(sys.executable).with_name("afterbay")
        found = str(beside) if beside.exists() else shutil.which("afterbay")
        self._program = program or found or "afterbay"
        self._env = {**os.environ, **env}

    async def text(self, *arguments: str, polite: bool = False, may_fail: bool = False) -> str:
        """Standard output of one command; `polite` runs it at the lowest priority.

        CommandFailed if it ends with an error, unless it `may_fail`.
        """
        async with self._started(arguments, polite) as process:
            out, err = await process.communicate()
        if process.returncode and not may_fail:
            told = (err or out).decode("utf-8", "replace").strip().splitlines()[-8:]
            raise CommandFailed(
                _short(arguments), f"ended with code {process.returncode}:\n" + "\n".join(told)
            )
        return out.decode("utf-8")

    async def json(self, *arguments: str, polite: bool = False, may_fail: bool = False) -> Any:
        """The JSON document on the last line of standard output."""
        out = await self.text(*arguments, polite=polite, may_fail=may_fail)
        lines = out.strip().splitlines()
        try:
            return json.loads(lines[-1])
        except (IndexError, ValueError):
            raise CommandFailed(_short(arguments), "printed no JSON") from None

    async def query(self, sql: str, polite: bool = False) -> list[dict[str, Any]]:
        """Rows of one SQL statement."""
        rows = await self.json("query", "--json", sql, polite=polite)
        return list(rows)

    async def lines(self, *arguments: str) -> AsyncGenerator[Any, None]:
        """JSON documents, a line each, of a command that goes on until it is cancelled."""
        async with self._started(arguments, polite=True) as process:
            assert process.stdout is not None  # noqa: S101  # asked for with PIPE
            async for line in process.stdout:
                with suppress(ValueError):
                    yield json.loads(line)

    @asynccontextmanager
    async def _started(
        self, arguments: tuple[str, ...], polite: bool
    ) -> AsyncIterator[asyncio.subprocess.Process]:
        # a session of its own: Ctrl-C is the demo's to handle, in its order
        process = await asyncio.create_subprocess_exec(
            *(("nice", "-n", "15") if polite and shutil.which("nice") else ()),
            self._program,
            *arguments,
            env=self._env,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            limit=_LINE_LIMIT,
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                await _end(process)


def _short(arguments: tuple[str, ...]) -> str:
    return "".join(f"{argument} " for argument in arguments[:2])


async def _end(process: asyncio.subprocess.Process) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            process.send_signal(number)
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), _END_S)
            return
