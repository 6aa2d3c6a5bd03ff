"""Leak scan: is any planted value readable anywhere in a home?

In:   a home, values that were planted in its traffic, its Kafka if it still runs
Out:  `LeakReport`: hits per place (0 where it was looked and nothing found) and per form
Refuses: a home without files to look at (BadState): a scan that saw nothing proves nothing
Never: changes a file; names a value, in its report or in an error

Looked at: every message Kafka gives back, aborted ones too (so compressed segments are read), with
keys and headers; the broker's files as they lie; each Parquet file of each table, superseded ones
too, decoded, token ids included; every other file of the home as it lies: Delta logs, key store,
process logs, Dagster's, reports; the rings in memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition

from afterbay.platform.home import Home
from afterbay.platform.needles import Encode, Searcher, spaced
from afterbay.platform.ring import L1
from afterbay.schemas.errors import BadState, Unavailable
from afterbay.schemas.topics import TOPICS
from afterbay.streams.admin import partitions_of
from afterbay.streams.kafka import KafkaAddress, as_ours, consumer_config, log

_PIECE = 8 * 1024 * 1024
_CHUNK = 1024 * 1024
_BATCH_ROWS = 4_096
_POLLS_WITHOUT_NEWS = 30


@dataclass(frozen=True, slots=True)
class LeakReport:
    """Where planted values were found. Made by `scan`, read by demo and CLI."""

    places: dict[str, int]
    """Hits by place; every place that was looked at, so 0 says something."""
    forms: dict[str, int]
    """Hits by form (`needles.FORMS`)."""
    values: int
    """Planted values found at least once, in any form."""
    planted: int
    """Planted values looked for."""
    searched_bytes: int
    """Bytes that were searched."""

    @property
    def hits(self) -> int:
        """All hits; 0 is what a home must show."""
        return sum(self.places.values())


@dataclass(frozen=True, slots=True)
class Part:
    """Some bytes of a place. Made by its reader, read by the scan."""

    place: str
    """`kafka/<topic>`, `lake/<table>`, `run/<file>`, `ring/l1`, or a folder of the home."""
    data: bytes
    """The bytes, decoded and decompressed where they were not plain."""
    continues: bool = False
    """True if they follow the part before without a gap."""


@dataclass(slots=True)
class _Place:
    """Bytes of one place on their way to the searcher, in pieces that overlap."""

    searcher: Searcher
    found: Counter[bytes] = field(default_factory=Counter)
    searched: int = 0
    _buffer: bytearray = field(default_factory=bytearray)
    _tail: bytes = b""

    def feed(self, part: Part) -> None:
        """Take a part; it is searched now or with the parts that follow."""
        if not part.continues:
            self._buffer += b"\0"
        self._buffer += part.data
        if len(self._buffer) >= _PIECE:
            self.end()

    def end(self) -> None:
        """Search what has gathered."""
        piece = self._tail + self._buffer
        self.searched += len(self._buffer)
        self._buffer.clear()
        self.found += self.searcher.search(piece)
        # what lies in the overlap alone was counted with the piece before
        self.found -= self.searcher.search(self._tail)
        self._tail = piece[max(0, len(piece) - self.searcher.longest + 1) :]


def scan(
    home: Home,
    values: Iterable[str],
    *,
    address: KafkaAddress | None = None,
    encode: Encode | None = None,
    skip: Collection[Path] = (),
) -> LeakReport:
    """Look for `values` in everything that `home` holds.

    `address` is its Kafka while that runs; `encode` a tokenizer, to look for token ids; `skip`
    files or folders that hold the values on purpose, such as the list they were planted from.
    """
    planted = list(dict.fromkeys(values))
    searcher = Searcher(planted, encode)
    places: dict[str, _Place] = {}
    for part in _everything(home, address, skip):
        places.setdefault(part.place, _Place(searcher)).feed(part)
    if not places:
        raise BadState(f"{home.path}: nothing to scan; is it the home of an installation?")
    for place in places.values():
        place.end()
    return _report(searcher, places, len(planted))


def _report(searcher: Searcher, places: dict[str, _Place], planted: int) -> LeakReport:
    total = sum((place.found for place in places.values()), Counter[bytes]())
    forms: Counter[str] = Counter()
    for needle, hits in total.items():
        forms[searcher.meaning(needle)[0]] += hits
    return LeakReport(
        places={name: place.found.total() for name, place in sorted(places.items())},
        forms=dict(forms),
        values=len({searcher.meaning(needle)[1] for needle in total}),
        planted=planted,
        searched_bytes=sum(place.searched for place in places.values()),
    )


def _everything(home: Home, address: KafkaAddress | None, skip: Collection[Path]) -> Iterator[Part]:
    """All there is."""
    skipped = [path.resolve() for path in skip]
    for path in sorted(home.path.rglob("*")):
        if path.is_file() and not any(path.resolve().is_relative_to(s) for s in skipped):
            yield from _file(_place(home, path), path)
    if home.ring(L1).exists():
        yield from _bytes("ring/l1", home.ring(L1))
    if address is not None:
        yield from _messages(address)


def _place(home: Home, path: Path) -> str:
    """`lake/<table>`, `run/<file>`, or the first folder."""
    parts = path.relative_to(home.path).parts
    depth = 2 if parts[0] in {"lake", "run"} else 1
    return "/".join(parts[:depth])


def _file(place: str, path: Path) -> Iterator[Part]:
    """Bytes of a file; of a Parquet file its values too."""
    try:
        yield from _bytes(place, path)
        if path.suffix == ".parquet":
            yield from (Part(place, data) for data in _parquet(path))
    except FileNotFoundError:
        return  # a log that was rotated, a segment that was deleted: gone is not leaked


def _bytes(place: str, path: Path) -> Iterator[Part]:
    """A file as it lies; stretches of zeros (Kafka's index files are little else) left out."""
    continues = False
    with path.open("rb") as file:
        while data := file.read(_CHUNK):
            if data.count(0) == len(data):
                continues = False
                continue
            yield Part(place, data, continues)
            continues = True
    yield Part(place, b"")  # an empty file was looked at too


def _parquet(path: Path) -> Iterator[bytes]:
    """Every text, binary and list of integers in a Parquet file."""
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(_BATCH_ROWS):
                for column in batch.columns:
                    yield from _leaves(column)
    except pa.ArrowInvalid:
        return  # not written to its end; its bytes were searched as they lie


def _leaves(column: pa.Array) -> Iterator[bytes]:
    """The values of a column, whatever it is nested in, as bytes.

    Numbers that stand alone are left out: token ids come in lists, and counts or offsets, one below
    the other, spell many a run of ids by chance.
    """
    kind = column.type
    if pa.types.is_dictionary(kind):
        yield from _leaves(column.dictionary)
    elif pa.types.is_struct(kind):
        for child in column.flatten():
            yield from _leaves(child)
    elif pa.types.is_map(kind):
        yield from _leaves(column.keys)
        yield from _leaves(column.items)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        if pa.types.is_integer(kind.value_type):
            yield from (spaced(ids) for ids in column.to_pylist() if ids)
        else:
            yield from _leaves(column.flatten())
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        yield b"\0".join(text.encode() for text in column.to_pylist() if text)
    elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        yield b"\0".join(data for data in column.to_pylist() if data)


def _messages(address: KafkaAddress) -> Iterator[Part]:
    """Key, value and headers of every message in the log, aborted ones too."""
    places = partitions_of(address, TOPICS)
    consumer = Consumer(
        consumer_config(address, "leakscan") | {"isolation.level": "read_uncommitted"}, logger=log
    )
    start = [TopicPartition(address.topic(p.topic), p.partition, OFFSET_BEGINNING) for p in places]
    try:
        consumer.assign(start)
        for topic in sorted({p.topic for p in places}):
            yield Part(f"kafka/{topic}", b"")
        yield from _drained(consumer, address, len(places))
    finally:
        consumer.close()


def _drained(consumer: Consumer, address: KafkaAddress, partitions: int) -> Iterator[Part]:
    """Messages until each partition's end was reached."""
    ended: set[tuple[str | None, int | None]] = set()
    quiet = 0
    while len(ended) < partitions:
        messages = consumer.consume(1_000, 1.0)
        quiet = 0 if messages else quiet + 1
        if quiet > _POLLS_WITHOUT_NEWS:
            raise Unavailable("leak scan: Kafka gives no more messages; check that it runs")
        for message in messages:
            error = message.error()
            if error is None:
                yield Part(f"kafka/{address.logical(message.topic() or '')}", _all_of(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add((message.topic(), message.partition()))
            else:
                raise as_ours(error, "leak scan")


def _all_of(message: Message) -> bytes:
    headers = message.headers() or []
    parts = [message.key(), message.value(), *(part for pair in headers for part in pair)]
    return b"\0".join(p.encode() if isinstance(p, str) else p for p in parts if p is not None)
