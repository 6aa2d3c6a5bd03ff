"""The supervisor with real, tiny processes: order, restarts, and that nothing is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from afterbay.platform.home import Home
from afterbay.platform.processes import Child, ProcessSpec, wait_until
from afterbay.platform.state import leftovers, read_state, start_ticks, supervising, supervisor_of
from afterbay.platform.supervisor import Supervisor, in_order
from afterbay.schemas.errors import BadSettings, BadState, Unavailable

STAY = "import signal; signal.pause()"
STUBBORN = (
    "import signal, pathlib, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "pathlib.Path(sys.argv[1]).touch(); signal.pause()"
)
PARENT = (
    "import subprocess, sys, signal, pathlib;"
    "child = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()']);"
    "pathlib.Path(sys.argv[1]).write_text(str(child.pid)); signal.pause()"
)


def spec(name: str, code: str, *args: str, **kwargs: object) -> ProcessSpec:
    return ProcessSpec(name=name, command=(sys.executable, "-c", code, *args), **kwargs)  # type: ignore[arg-type]  # each test knows its keywords


@pytest.fixture
def supervise(tmp_path: Path) -> Iterator[Callable[..., Supervisor]]:
    """Makes supervisors of one home, and stops them."""
    made: list[Supervisor] = []
    home = Home(tmp_path)
    home.prepare()

    def make(*specs: ProcessSpec, notice: Callable[[str], None] = lambda _: None) -> Supervisor:
        made.append(
            Supervisor(
                home,
                specs,
                environ=os.environ,
                addresses={},
                metrics={},
                settings={},
                notice=notice,
            )
        )
        return made[-1]

    yield make
    for supervisor in made:
        supervisor.stop()


def pid_of(home: Path, name: str) -> int:
    state = read_state(Home(home))
    assert state is not None
    pid = state.processes[name].pid
    assert pid is not None
    return pid


def never() -> bool:
    return False


def test_processes_start_behind_those_they_come_after(
    supervise: Callable[..., Supervisor], tmp_path: Path
) -> None:
    told: list[str] = []
    supervisor = supervise(
        spec("last", STAY, after=("middle",)),
        spec("first", STAY),
        spec("middle", STAY, after=("first",)),
        notice=told.append,
    )
    assert supervisor.start(never)
    assert [line.split()[0] for line in told] == ["first", "middle", "last"]


def test_a_killed_process_comes_back(supervise: Callable[..., Supervisor], tmp_path: Path) -> None:
    supervisor = supervise(spec("node", STAY))
    supervisor.start(never)
    first = pid_of(tmp_path, "node")
    os.kill(first, signal.SIGKILL)

    def is_back() -> bool:
        supervisor.step()
        state = read_state(Home(tmp_path))
        return state is not None and state.processes["node"].pid not in {None, first}

    assert wait_until(is_back, 10)
    state = read_state(Home(tmp_path))
    assert state is not None
    assert (state.processes["node"].restarts, state.processes["node"].last_exit) == (
        1,
        "signal 9 (Killed)",
    )


def test_a_process_that_cannot_start_is_named_with_its_last_words(
    supervise: Callable[..., Supervisor],
) -> None:
    supervisor = supervise(spec("sink", "import sys; sys.exit('no lake here')", ready=never))
    with pytest.raises(Unavailable, match=r"(?s)sink cannot be started: exit code 1.*no lake here"):
        supervisor.start(never)


def test_stop_leaves_no_process_not_even_a_stubborn_one_or_a_grandchild(
    supervise: Callable[..., Supervisor], tmp_path: Path
) -> None:
    deaf, grandchild = tmp_path / "deaf", tmp_path / "grandchild"
    supervisor = supervise(
        spec("stubborn", STUBBORN, str(deaf), stop_timeout_s=0.2, ready=deaf.exists),
        spec("parent", PARENT, str(grandchild), ready=lambda: bool(_text(grandchild))),
    )
    supervisor.start(never)
    pids = [*(pid_of(tmp_path, name) for name in ("stubborn", "parent")), int(_text(grandchild))]
    supervisor.stop()
    assert wait_until(lambda: all(start_ticks(pid) is None for pid in pids), 5)


def test_children_of_a_killed_supervisor_end_with_it(tmp_path: Path) -> None:
    code = (
        "import sys, os, signal; from pathlib import Path;"
        "from afterbay.platform.home import Home;"
        "from afterbay.platform.processes import ProcessSpec;"
        "from afterbay.platform.supervisor import Supervisor;"
        "home = Home(Path(sys.argv[1])); home.prepare();"
        f"one = ProcessSpec(name='one', command=(sys.executable, '-c', {STAY!r}));"
        "s = Supervisor(home, [one], environ=os.environ, addresses={}, metrics={}, settings={},"
        " notice=lambda _: None); s.start(lambda: False); print('up', flush=True); signal.pause()"
    )
    starter = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert starter.stdout is not None
    with starter.stdout:
        assert starter.stdout.readline() == "up\n"
    state = read_state(Home(tmp_path))
    assert state is not None
    assert len(leftovers(state)) == 1
    starter.kill()
    starter.wait()
    assert wait_until(lambda: not leftovers(state), 5)


def test_a_second_supervisor_of_a_home_is_told_who_the_first_is(tmp_path: Path) -> None:
    home = Home(tmp_path)
    code = (
        "import sys, signal; from pathlib import Path; from afterbay.platform.home import Home;"
        "from afterbay.platform.state import supervising\n"
        "with supervising(Home(Path(sys.argv[1]))): print('held', flush=True); signal.pause()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "held\n"
        assert supervisor_of(home) == first.pid
        with (
            pytest.raises(BadState, match=rf"run by process {first.pid} already.*afterbay down"),
            supervising(home),
        ):
            pass
        first.kill()
    assert supervisor_of(home) is None


def test_processes_that_wait_for_each_other_are_refused() -> None:
    with pytest.raises(BadSettings, match="wait for each other"):
        in_order([spec("a", STAY, after=("b",)), spec("b", STAY, after=("a",))])


def test_a_command_that_does_not_exist_ends_with_its_name_in_the_log(tmp_path: Path) -> None:
    child = Child(
        ProcessSpec(name="x", command=("/no/such/program",)), tmp_path / "x.log", os.environ
    )
    assert wait_until(lambda: child.exit_code is not None, 5)
    assert "/no/such/program" in child.log_tail() or "No such file" in child.log_tail()
    child.kill()


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def test_a_child_can_be_interrupted_although_its_starter_cannot(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in a shell's background job
    try:
        log = tmp_path / "x.log"
        child = Child(spec("x", f"print('up', flush=True); {STAY}"), log, os.environ)
    finally:
        signal.signal(signal.SIGINT, before)
    assert wait_until(lambda: child.log_tail() == "up", 5)
    os.kill(child.pid, signal.SIGINT)
    assert wait_until(lambda: child.exit_code is not None, 5)
    child.kill()
