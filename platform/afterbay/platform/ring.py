"""L1: a ring of records in shared memory, one writer (the gateway), one reader (the flusher).

In:   bytes of one record (`records.pack`), room reserved at admission
Out:  the records in order, each with its sequence, until the reader frees them
Refuses: a second writer or reader, a file that is no ring, a record larger than its room
Never: touches a disk (the file lies in shared memory), keeps a freed byte (it is zeroed)

The ring is a stream of bytes laid around `capacity` bytes of memory. A *position* counts bytes from
the beginning of the stream and never goes back; a record's **sequence is the position of its end**
(as a WAL's LSN), so sequences grow but are not consecutive, and 0 means "before the first".

    header: magic | head | done | tail | capacity | ring id     record: start | length | crc | data
    stream: ... zeroed | tail | freed, being zeroed | done | readable | head | zeroed ...

One aligned 8-byte store publishes a record (`head`), another frees it (`done`, then zeroes, then
`tail`), so kill -9 of either side between any two instructions leaves a ring both can go on with:
a record is in it whole or not at all. Each record carries its own position and a CRC-32; one that
fails is looked at twice (a CPU with weak memory order may show `head` before the data), then
skipped to the next position whose record is whole, and counted in `torn`.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from afterbay.schemas.errors import BadState, Fenced, Retryable, Unavailable

MAGIC = 0x31474E49_52424641  # "AFBRING1", little endian
_HEADER = 4096
_MAGIC, _HEAD, _DONE, _TAIL, _CAPACITY = 0, 8, 16, 24, 4  # 64 B apart: a cache line per counter
_ID = slice(512, 544)
_RECORD = struct.Struct("=QII")  # start position, length, CRC-32 of the data seeded with start
_ALIGN = _RECORD.size
_MAX_RECORD = 16 * 1024 * 1024
_ZEROS = bytes(1024 * 1024)

L1 = "l1"
"""Name of the gateway's ring: it lies at `Home.ring(L1)`."""
CAPACITY = 64 * 1024 * 1024
"""Bytes it is made with: some thousands of answers, minutes of a flusher that is away."""

Role = Literal["writer", "reader", "observer"]


class RingFull(Unavailable):
    """The ring has no room for a record; nothing was written."""


@dataclass(slots=True, eq=False)
class Reservation:
    """Room promised to one admitted request. Made by `Ring.reserve`, ended by append or release."""

    room: int
    """Bytes of the ring still held, record header and alignment included; 0 once ended."""


def room_for(size: int) -> int:
    """Bytes of the ring that a record of `size` bytes takes."""
    return _ALIGN + -(-size // _ALIGN) * _ALIGN


class Ring:
    """One process's end of a ring. Not thread-safe: one thread appends, one thread reads."""

    def __init__(self, path: Path, role: Role) -> None:
        self.path = path
        """File of the ring."""
        self.torn = 0
        """Records this reader skipped because their check failed."""
        self._reserved = 0
        self._suspect = -1
        self._lock = _claim(path, role)
        try:
            self._map = _map(path)
        except BaseException:
            _unlock(self._lock)
            raise
        self._bytes = memoryview(self._map)
        self._words = self._bytes[:_HEADER].cast("Q")
        self._data = self._bytes[_HEADER:]
        self.capacity: int = self._words[_CAPACITY]
        """Bytes the ring holds, record headers and alignment included."""
        self.ring_id = bytes(self._bytes[_ID]).decode("ascii")
        """Tells this ring from one made later under the same path."""
        self._recover(role)

    @classmethod
    def create(
        cls, path: Path, capacity: int, role: Role = "writer", ring_id: str | None = None
    ) -> Self:
        """Make a ring of `capacity` bytes (a multiple of 4096) at `path` and attach to it.

        `ring_id` is 32 hex digits, drawn from the OS if None. FileExistsError if a file is there
        already, BadState if shared memory has not that much room.
        """
        if capacity <= 0 or capacity % 4096:
            raise ValueError(f"ring capacity {capacity} must be a positive multiple of 4096")
        _make(path, capacity, os.urandom(16).hex() if ring_id is None else ring_id)
        return cls(path, role)

    @classmethod
    def attach(cls, path: Path, role: Role = "reader") -> Self:
        """Attach to the ring at `path`; Unavailable if there is none yet, Fenced if taken."""
        return cls(path, role)

    @classmethod
    def open(cls, path: Path, capacity: int, role: Role) -> Self:
        """Attach to the ring at `path`, made with `capacity` first if there is none.

        A ring that is there keeps its own capacity: it may hold records.
        """
        if not path.exists():
            try:
                return cls.create(path, capacity, role)
            except FileExistsError:
                pass  # the other side made it meanwhile
        return cls.attach(path, role)

    # --- both sides

    @property
    def used(self) -> int:
        """Bytes taken by records not yet freed and by reservations of this process."""
        return self._words[_HEAD] - self._words[_TAIL] + self._reserved

    @property
    def fill(self) -> float:
        """`used` as a share of `capacity`, 0 to 1."""
        return self.used / self.capacity

    @property
    def last_sequence(self) -> int:
        """Sequence of the newest record; 0 if there never was one."""
        return self._words[_HEAD]

    @property
    def freed_sequence(self) -> int:
        """Sequence up to which records are freed."""
        return self._words[_DONE]

    def close(self) -> None:
        """Detach; the ring and its records stay."""
        for view in (self._words, self._data, self._bytes):
            view.release()
        self._map.close()
        _unlock(self._lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # --- writer

    def reserve(self, size: int) -> Reservation | None:
        """Hold room for one record of up to `size` bytes; None if there is none now."""
        room = room_for(size)
        if room > self.capacity - self.used:
            return None
        self._reserved += room
        return Reservation(room)

    def release(self, reservation: Reservation) -> None:
        """Give back what `reservation` still holds; harmless if it ended already."""
        self._reserved -= reservation.room
        reservation.room = 0

    def append(self, data: bytes, reservation: Reservation | None = None) -> int:
        """Write one record, end `reservation`, and return the record's sequence.

        RingFull if the record fits neither its reservation nor what is free beside all others;
        the reservation then still holds.
        """
        size = len(data)
        room = _ALIGN + (size + _ALIGN - 1 & -_ALIGN)
        words = self._words
        start = words[_HEAD]
        held = 0 if reservation is None else reservation.room
        if room > held and room - held > self.capacity - (start - words[_TAIL]) - self._reserved:
            raise RingFull(_full(size, self.capacity))
        if not 0 < size <= _MAX_RECORD:
            raise ValueError(f"a ring record has 1 to {_MAX_RECORD} bytes, not {size}")
        at = start % self.capacity
        _RECORD.pack_into(self._data, at, start, size, zlib.crc32(data, start & 0xFFFFFFFF))
        at += _ALIGN
        if at + size <= self.capacity:
            self._data[at : at + size] = data
        else:
            self._store(at, data)
        words[_HEAD] = start + room  # publishes: everything above is in memory before it
        if reservation is not None:
            self._reserved -= held
            reservation.room = 0
        return start + room

    # --- reader

    def read(
        self, after_sequence: int = 0, max_records: int = 1024, max_bytes: int = 64 << 20
    ) -> list[tuple[int, bytes]]:
        """Records after `after_sequence` in order, as (sequence, data copied out); [] if none.

        At least one record is given if there is one, however large. BadState if the ring never
        held `after_sequence`: the caller's cursor belongs to another ring.
        """
        head = self._words[_HEAD]
        if after_sequence > head:
            raise BadState(
                f"ring {self.path.name} ends at {head}, asked to read after {after_sequence}: "
                f"compare the cursor's ring id with {self.ring_id} and start at 0 if they differ"
            )
        at = max(after_sequence, self._words[_DONE])
        found: list[tuple[int, bytes]] = []
        taken = 0
        while at < head and len(found) < max_records and taken < max_bytes:
            data = self._record(at, head)
            if data is None:
                skipped = self._skip(at, head)
                if skipped == at:
                    break
                at = skipped
                continue
            at += room_for(len(data))
            taken += len(data)
            found.append((at, data))
        return found

    def free(self, through_sequence: int) -> None:
        """Zero every record up to and including `through_sequence` and give its room back."""
        if through_sequence > self._words[_HEAD]:
            raise BadState(
                f"ring {self.path.name} ends at {self._words[_HEAD]}, "
                f"asked to free through {through_sequence}: free only what `read` gave"
            )
        # `done` first: no reader meets a half-zeroed record
        self._words[_DONE] = max(self._words[_DONE], through_sequence)
        self._zero(self._words[_TAIL], self._words[_DONE])
        self._words[_TAIL] = self._words[_DONE]  # last: the writer may use the room now

    # --- inside

    def _recover(self, role: Role) -> None:
        """Finish what a killed predecessor left: zero what it had not published, or not freed."""
        if role == "writer":
            self._zero(self._words[_HEAD], self._words[_TAIL] + self.capacity)
        elif role == "reader":
            self.free(0)

    def _record(self, at: int, head: int) -> bytes | None:
        """Data of the record that starts at position `at`; None if there is no whole one."""
        start, size, crc = _RECORD.unpack_from(self._data, at % self.capacity)
        if start != at or not 0 < size <= head - at - _ALIGN:
            return None
        data = self._load(at + _ALIGN, size)
        return data if zlib.crc32(data, at & 0xFFFFFFFF) == crc else None

    def _skip(self, at: int, head: int) -> int:
        """Where to go on after the bad record at `at`; `at` itself on the first look."""
        if self._suspect != at:
            self._suspect = at
            return at
        self.torn += 1
        for position in range(at + _ALIGN, head, _ALIGN):
            if self._record(position, head) is not None:
                return position
        return head

    def _load(self, position: int, size: int) -> bytes:
        at = position % self.capacity
        end = at + size
        if end <= self.capacity:
            return bytes(self._data[at:end])
        return bytes(self._data[at:]) + bytes(self._data[: end - self.capacity])

    def _store(self, at: int, data: bytes) -> None:
        """Store `data` at index `at`, around the end of the memory."""
        at %= self.capacity
        first = min(len(data), self.capacity - at)
        self._data[at : at + first] = data[:first]
        self._data[: len(data) - first] = data[first:]

    def _zero(self, start: int, end: int) -> None:
        while start < end:
            at = start % self.capacity
            step = min(end - start, self.capacity - at, len(_ZEROS))
            self._data[at : at + step] = _ZEROS[:step]
            start += step


def discard(path: Path) -> None:
    """Zero and remove the ring at `path` and its locks; nothing if there is none.

    For `down` with a ring known to be empty, and for tests: what it holds is lost.
    """
    if path.exists():
        with Ring.attach(path, "reader") as ring:
            ring.free(ring.last_sequence)
    for file in (path, *(_lock_path(path, role) for role in ("writer", "reader"))):
        file.unlink(missing_ok=True)


def _make(path: Path, capacity: int, ring_id: str) -> None:
    """Write a whole ring beside `path`, then link it there: nobody sees half of one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
    fresh.unlink(missing_ok=True)
    fd = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        _allocate(fd, path, _HEADER + capacity)
        os.pwrite(fd, struct.pack("=Q", capacity), _CAPACITY * 8)
        os.pwrite(fd, ring_id.encode("ascii").ljust(32)[:32], _ID.start)
        os.pwrite(fd, struct.pack("=Q", MAGIC), _MAGIC)
        os.link(fresh, path)
    finally:
        os.close(fd)
        fresh.unlink()


def _allocate(fd: int, path: Path, size: int) -> None:
    """Take all the memory now: a sparse file on a full tmpfs would be SIGBUS at some append."""
    try:
        os.posix_fallocate(fd, 0, size)
    except OSError as error:
        raise BadState(
            f"{path.parent} has no room for a ring of {size} bytes ({error.strerror}): "
            "free shared memory or set a smaller ring"
        ) from None


def _map(path: Path) -> mmap.mmap:
    try:
        fd = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        raise Unavailable(f"no ring at {path}: its writer has not made it yet") from None
    try:
        head = os.pread(fd, _HEADER, 0)
        size = os.fstat(fd).st_size
        words: Sequence[int] = memoryview(head).cast("Q") if len(head) == _HEADER else ()
        if not words or words[_MAGIC] != MAGIC or size != _HEADER + words[_CAPACITY]:
            raise BadState(f"{path} ({size} bytes) is no ring of this version: move it away")
        return mmap.mmap(fd, size)
    finally:
        os.close(fd)


def _lock_path(path: Path, role: str) -> Path:
    return path.with_name(f"{path.name}.{role}")


def _claim(path: Path, role: Role) -> int | None:
    """Lock of the one writer or reader; the kernel drops it when its process dies."""
    if role == "observer":
        return None
    if not path.parent.is_dir():
        raise Retryable(f"no folder {path.parent} for a ring: make it first")
    fd = os.open(_lock_path(path, role), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        raise Fenced(f"ring {path.name} has a {role} already: stop it first") from None
    return fd


def _unlock(lock: int | None) -> None:
    if lock is not None:
        os.close(lock)


def _full(size: int, capacity: int) -> str:
    return (
        f"ring of {capacity} bytes has no room for a record of {size}: "
        "wait for the flusher, or see why it does not free"
    )
