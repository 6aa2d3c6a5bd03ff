"""`python -m afterbay.platform.demo`: the main job. `make demo` runs it.

In:   environment variables (see `DemoSettings`)
Out:  progress and a summary on standard output, files in `.afterbay/demo/`
Exit: 0 if nothing was lost or doubled, nothing leaked, and at least three trainings were seen;
      1 if not, or a command failed; 130 after Ctrl-C
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys

import uvloop
from rich.console import Console

from afterbay.platform.demo.display import Display
from afterbay.platform.demo.recording import Recording, save
from afterbay.platform.demo.run import Demo
from afterbay.platform.demo.settings import DemoSettings
from afterbay.platform.demo.summary import page, problems, summarise
from afterbay.schemas.errors import AfterbayError

STOPPED = 130


def main() -> int:
    """Run the demo; the exit code."""
    display = Display(Console())
    try:
        settings = DemoSettings.from_env(os.environ)
        recording = uvloop.run(_interruptible(Demo(settings, display)))
    except AfterbayError as error:
        display.say(f"demo: {error}")
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        display.say("stopped")
        return STOPPED
    return _finish(recording, settings, display)


async def _interruptible(demo: Demo) -> Recording:
    """Run `demo`; Ctrl-C and SIGTERM cancel it, and it stops what it started."""
    task = asyncio.current_task()
    assert task is not None  # noqa: S101  # inside a coroutine there is one
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    return await demo.run()


def _finish(recording: Recording, settings: DemoSettings, display: Display) -> int:
    from afterbay.platform.demo.report import write_report  # noqa: PLC0415  # matplotlib is slow

    out = settings.out
    out.mkdir(parents=True, exist_ok=True)
    save(out / "recording.json", recording)
    wrong = problems(recording, settings.least_trainings)
    summary = {**summarise(recording), "ok": not wrong, "problems": wrong}
    (out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n", "utf-8")
    write_report(out / "report.html", recording, wrong)
    display.page("", page(recording))
    for line in wrong:
        display.say(f"NOT ok: {line}")
    display.say(f"{'ok' if not wrong else 'failed'}; see {out / 'report.html'}")
    return 0 if not wrong else 1


if __name__ == "__main__":
    sys.exit(main())
