"""The L1 ring: what was appended is read once, in order, whatever dies when."""

from __future__ import annotations

import os
import random
import signal
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from afterbay.platform.ring import Reservation, Ring, RingFull, discard, room_for
from afterbay.schemas.errors import BadState, Fenced, Unavailable

SMALL = 4096
HEADER = 4096


@pytest.fixture
def path() -> Iterator[Path]:
    where = _fresh_path()
    yield where
    discard(where)


def _fresh_path() -> Path:
    shm = Path("/dev/shm")  # noqa: S108  # where rings lie
    return shm / f"afterbay-test-{os.getpid()}-{random.getrandbits(48):x}.ring"


def _payload(index: int, largest: int = 700) -> bytes:
    """The record a test writer makes as its `index`-th: its size and bytes follow from `index`."""
    size = 8 + (index * 2_654_435_761 & 0xFFFFFFFF) % largest
    return struct.pack("<Q", index) + bytes(index + i & 0xFF for i in range(size))


def _memory(path: Path) -> bytes:
    return path.read_bytes()[HEADER:]


def test_records_come_out_in_order_and_once(path: Path) -> None:
    with Ring.create(path, SMALL) as writer, Ring.attach(path) as reader:
        sequences = [writer.append(_payload(i)) for i in range(5)]
        assert reader.read() == [(s, _payload(i)) for i, s in enumerate(sequences)]
        assert reader.read(sequences[2]) == [
            (s, _payload(i + 3)) for i, s in enumerate(sequences[3:])
        ]
        assert reader.read(sequences[-1]) == []
        assert reader.read(0, max_records=1) == [(sequences[0], _payload(0))]


def test_sequences_grow_over_many_laps_of_the_memory(path: Path) -> None:
    with Ring.create(path, SMALL) as writer, Ring.attach(path) as reader:
        last = 0
        for index in range(500):  # about 45 laps, records of every size across the seam
            sequence = writer.append(_payload(index))
            assert sequence > last
            assert reader.read(last) == [(sequence, _payload(index))]
            reader.free(sequence)
            last = sequence
        assert last > 40 * SMALL


def test_a_full_ring_refuses_and_takes_again_after_a_free(path: Path) -> None:
    with Ring.create(path, SMALL) as writer, Ring.attach(path) as reader:
        first = writer.append(bytes(1000))
        for _ in range(3):
            writer.append(b"x" * 1000)
        with pytest.raises(RingFull, match="no room for a record of 1000"):
            writer.append(b"y" * 1000)
        assert writer.reserve(1000) is None
        reader.free(first)
        assert writer.reserve(1000) is not None


def test_reserved_room_is_kept_for_its_record(path: Path) -> None:
    with Ring.create(path, SMALL) as writer:
        held = writer.reserve(2000)
        assert held is not None
        with pytest.raises(RingFull):
            writer.append(b"z" * 3000)
        assert writer.used == room_for(2000)
        writer.append(b"a" * 50, held)
        assert (held.room, writer.used) == (0, room_for(50))
        writer.append(b"z" * 3000)


def test_a_released_reservation_gives_its_room_back_once(path: Path) -> None:
    with Ring.create(path, SMALL) as writer:
        held = writer.reserve(100)
        assert held is not None
        writer.release(held)
        writer.release(held)
        assert writer.used == 0


def test_freed_bytes_and_a_dead_writers_bytes_are_zeroed(path: Path) -> None:
    with Ring.create(path, SMALL) as writer, Ring.attach(path) as reader:
        for index in range(60):
            sequence = writer.append(b"secret" * (1 + index))
            reader.free(sequence)
    assert not any(_memory(path))
    with path.open("r+b") as file:  # what a writer killed before it published leaves behind
        file.seek(HEADER + (sequence + 500) % SMALL)
        file.write(b"secret")
    with Ring.attach(path, "writer"):
        assert not any(_memory(path))


def test_a_torn_record_is_skipped_on_the_second_look_and_counted(path: Path) -> None:
    with Ring.create(path, SMALL) as writer, Ring.attach(path) as reader:
        sequences = [writer.append(_payload(i)) for i in range(4)]
        with path.open("r+b") as file:
            file.seek(HEADER + sequences[0] + 16 + 3)
            file.write(b"\xee")
        assert [s for s, _ in reader.read()] == sequences[:1]
        assert [s for s, _ in reader.read(sequences[0])] == sequences[2:]
        assert reader.torn == 1


def test_a_record_whose_length_is_torn_is_skipped_to_the_next_whole_one(path: Path) -> None:
    with Ring.create(path, SMALL) as writer, Ring.attach(path) as reader:
        sequences = [writer.append(_payload(i)) for i in range(3)]
        for wrong in (0, 77, 2**32 - 1):
            with path.open("r+b") as file:
                file.seek(HEADER + 8)
                file.write(struct.pack("<I", wrong))
            reader.read()
            assert [s for s, _ in reader.read()] == sequences[1:]


def test_a_second_writer_and_a_second_reader_are_fenced(path: Path) -> None:
    with Ring.create(path, SMALL), Ring.attach(path):
        with pytest.raises(Fenced, match="has a writer already"):
            Ring.attach(path, "writer")
        with pytest.raises(Fenced, match="has a reader already"):
            Ring.attach(path, "reader")
        with Ring.attach(path, "observer") as looking:
            assert looking.fill == 0


def test_a_reader_before_the_first_writer_is_told_to_wait(path: Path) -> None:
    with pytest.raises(Unavailable, match="has not made it yet"):
        Ring.attach(path)


def test_either_side_may_make_the_ring_and_the_other_finds_it(path: Path) -> None:
    with Ring.open(path, SMALL, "reader") as reader, Ring.open(path, 2 * SMALL, "writer") as writer:
        assert (writer.ring_id, writer.capacity) == (reader.ring_id, SMALL)
        with pytest.raises(FileExistsError):
            Ring.create(path, SMALL, "observer")


def test_a_file_that_is_no_ring_is_refused(path: Path) -> None:
    path.write_bytes(b"\x00" * 9000)
    with pytest.raises(BadState, match="is no ring of this version"):
        Ring.attach(path)
    path.unlink()


def test_a_cursor_of_another_ring_is_refused(path: Path) -> None:
    with Ring.create(path, SMALL) as writer:
        with pytest.raises(BadState, match="ring id"):
            writer.read(1600)
        with pytest.raises(BadState, match="free only what"):
            writer.free(1600)


def test_a_ring_larger_than_shared_memory_is_refused_before_it_can_fault(path: Path) -> None:
    with pytest.raises(BadState, match="free shared memory"):
        Ring.create(path, 1 << 50)
    assert not path.exists()


def test_the_file_is_private(path: Path) -> None:
    with Ring.create(path, SMALL):
        assert path.stat().st_mode & 0o777 == 0o600


# --- against a model


class RingMachine(RuleBasedStateMachine):
    """The ring beside a deque: any order of calls and re-attachments of either side."""

    def __init__(self) -> None:
        super().__init__()
        self.path = _fresh_path()
        self.writer = Ring.create(self.path, SMALL)
        self.reader = Ring.attach(self.path)
        self.kept: deque[tuple[int, bytes]] = deque()
        self.held: list[Reservation] = []

    def _room(self) -> int:
        records = sum(room_for(len(data)) for _, data in self.kept)
        return SMALL - records - sum(r.room for r in self.held)

    @rule(data=st.binary(min_size=1, max_size=1500))
    def append(self, data: bytes) -> None:
        if room_for(len(data)) > self._room():
            with pytest.raises(RingFull):
                self.writer.append(data)
        else:
            self.kept.append((self.writer.append(data), data))

    @rule(size=st.integers(1, 1500))
    def reserve(self, size: int) -> None:
        held = self.writer.reserve(size)
        assert (held is None) == (room_for(size) > self._room())
        if held is not None:
            self.held.append(held)

    @precondition(lambda self: self.held)
    @rule(share=st.floats(0.01, 1), write=st.booleans())
    def end_a_reservation(self, share: float, write: bool) -> None:
        held = self.held.pop()
        if write:
            data = b"r" * max(1, int(share * (held.room - 16)))
            self.kept.append((self.writer.append(data, held), data))
        else:
            self.writer.release(held)

    @precondition(lambda self: self.kept)
    @rule(share=st.floats(0, 1))
    def free(self, share: float) -> None:
        count = max(1, int(share * len(self.kept)))
        through = [self.kept.popleft() for _ in range(count)][-1][0]
        self.reader.free(through)

    @rule()
    def restart_the_writer(self) -> None:
        self.writer.close()
        self.writer = Ring.attach(self.path, "writer")
        self.held.clear()

    @rule()
    def restart_the_reader(self) -> None:
        self.reader.close()
        self.reader = Ring.attach(self.path)

    @invariant()
    def reads_what_the_model_holds(self) -> None:
        assert self.reader.read() == list(self.kept)
        assert self.writer.used == SMALL - self._room()
        taken = sum(map(bool, _memory(self.path)))
        assert taken <= sum(16 + len(data) for _, data in self.kept)

    def teardown(self) -> None:
        self.writer.close()
        self.reader.close()
        discard(self.path)


TestRingAgainstAModel = RingMachine.TestCase
TestRingAgainstAModel.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


# --- death


class _DiedError(BaseException):
    """Stands for SIGKILL between two bytecodes."""


def _die_at(opcode: int, call: Callable[[], object]) -> bool:
    """Run `call`, stopping for good before its `opcode`-th bytecode; False if it finished."""
    left = opcode

    def trace(frame: FrameType, event: str, _arg: object) -> object:
        nonlocal left
        frame.f_trace_opcodes = True
        if event == "opcode":
            left -= 1
            if left < 0:
                raise _DiedError
        return trace

    previous = sys.gettrace()
    sys.settrace(trace)  # type: ignore[arg-type]  # a local trace function may return itself
    try:
        call()
    except _DiedError:
        return True
    finally:
        sys.settrace(previous)
    return False


@pytest.mark.parametrize("before", [0, 900, 3900, 4000])
def test_a_writer_dead_before_any_bytecode_leaves_the_record_whole_or_absent(
    path: Path, before: int
) -> None:
    opcode, died = 0, True
    while died:
        with Ring.create(path, SMALL) as writer, Ring.attach(path) as reader:
            if before:
                reader.free(writer.append(b"b" * before))
            first = writer.append(b"first" * 20)
            died = _die_at(opcode, lambda w=writer: w.append(b"second" * 30))  # type: ignore[misc]  # bound now on purpose
        with Ring.attach(path, "writer") as writer, Ring.attach(path) as reader:
            third = writer.append(b"third" * 40)
            got = reader.read()
            assert got[0] == (first, b"first" * 20)
            assert got[-1] == (third, b"third" * 40)
            assert [d for _, d in got[1:-1]] in ([], [b"second" * 30])
            reader.free(third)
        assert not any(_memory(path))
        path.unlink()
        opcode += 1
    assert opcode > 50


@pytest.mark.parametrize("before", [0, 3900])
def test_a_reader_dead_before_any_bytecode_of_free_loses_and_repeats_nothing(
    path: Path, before: int
) -> None:
    opcode, died = 0, True
    while died:
        with Ring.create(path, SMALL) as writer, Ring.attach(path) as reader:
            if before:
                reader.free(writer.append(b"b" * before))
            sequences = [writer.append(_payload(i)) for i in range(4)]
            died = _die_at(opcode, lambda r=reader, s=sequences: r.free(s[1]))  # type: ignore[misc]  # bound now on purpose
        with Ring.attach(path, "writer") as writer, Ring.attach(path) as reader:
            assert [s for s, _ in reader.read(sequences[1])] == sequences[2:]
            assert [s for s, _ in reader.read()][-2:] == sequences[2:]
            assert reader.torn == 0
            reader.free(sequences[3])
            assert writer.used == 0
        assert not any(_memory(path))
        path.unlink()
        opcode += 1
    assert opcode > 50


_WRITER = """
import sys
from pathlib import Path
from tests.unit.platform.test_ring import Ring, RingFull, _payload
index = int(sys.argv[2])
with Ring.attach(Path(sys.argv[1]), "writer") as ring:
    print("on", flush=True)
    while True:
        try:
            ring.append(_payload(index))
            index += 1
        except RingFull:
            pass
"""

_READER = """
import os, struct, sys
from pathlib import Path
from tests.unit.platform.test_ring import Ring, _payload
cursor = os.open(sys.argv[2], os.O_RDWR)
with Ring.attach(Path(sys.argv[1])) as ring:
    print("on", flush=True)
    while True:
        sequence, index = struct.unpack("<QQ", os.pread(cursor, 16, 0))
        for sequence, data in ring.read(sequence, max_records=20):
            assert data == _payload(index), index
            index += 1
        assert ring.torn == 0
        os.pwrite(cursor, struct.pack("<QQ", sequence, index), 0)
        ring.free(sequence)
"""


def _start(code: str, *args: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-c", code, *args], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"on\n"
    return process


def _kill(process: subprocess.Popen[bytes]) -> None:
    assert process.poll() is None, "it must die by our hand, not by a failed check"
    process.send_signal(signal.SIGKILL)
    process.communicate()


def test_a_writer_killed_at_random_moments_leaves_a_ring_the_next_one_goes_on_with(
    path: Path,
) -> None:
    chance = random.Random(7)  # noqa: S311  # moments, not secrets
    Ring.create(path, 16 * SMALL, "observer").close()
    index, last = 0, 0
    with Ring.attach(path) as reader:
        for _ in range(6):
            process = _start(_WRITER, str(path), str(index))
            until = time.monotonic() + chance.uniform(0.01, 0.15)
            while time.monotonic() < until or not (got := reader.read(last)):
                index, last = _check(reader, index, last)
            _kill(process)
            index, last = _check(reader, index, last)
            assert got
        assert reader.torn == 0
    assert index > 100


def _check(reader: Ring, index: int, last: int) -> tuple[int, int]:
    """Read and free everything; (next index, last sequence)."""
    for sequence, data in reader.read(last):
        assert data == _payload(index)
        index, last = index + 1, sequence
    reader.free(last)
    return index, last


def test_a_reader_killed_at_random_moments_resumes_after_its_cursor(
    path: Path, tmp_path: Path
) -> None:
    chance = random.Random(8)  # noqa: S311  # moments, not secrets
    cursor = tmp_path / "cursor"
    cursor.write_bytes(bytes(16))
    index = 0
    with Ring.create(path, 4 * SMALL) as writer:
        for _ in range(6):
            process = _start(_READER, str(path), str(cursor))
            until = time.monotonic() + chance.uniform(0.01, 0.15)
            while time.monotonic() < until:
                if writer.fill < 0.9:
                    writer.append(_payload(index))
                    index += 1
            _kill(process)
        sequence, seen = struct.unpack("<QQ", cursor.read_bytes())
        with Ring.attach(path) as reader:
            rest = reader.read(sequence)
            assert [data for _, data in rest] == [_payload(i) for i in range(seen, index)]
    assert index > 100
