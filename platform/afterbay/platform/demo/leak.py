"""Looks for every planted value in everything the installation holds.

In:   the home, its Kafka, the planted values, a snapshot's tokenizer
Out:  `Leak`
Never: names a value
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from afterbay.platform.demo.personal import Planted
from afterbay.platform.demo.recording import Leak
from afterbay.platform.home import Home


def scan(home: Path, planted: Iterable[Planted], bootstrap: str, tokenizer: Path | None) -> Leak:
    """One scan; token ids are looked for if there is a `tokenizer`."""
    # Kafka's and Arrow's libraries are loaded when they are needed, after the play
    from tokenizers import Tokenizer  # noqa: PLC0415  # as above

    from afterbay.platform import leakscan  # noqa: PLC0415  # as above
    from afterbay.streams.kafka import KafkaAddress  # noqa: PLC0415  # as above

    encode = None
    if tokenizer is not None and tokenizer.exists():
        core = Tokenizer.from_file(str(tokenizer))

        def encode(text: str) -> list[int]:
            return list(core.encode(text).ids)

    report = leakscan.scan(
        Home(home),
        {value.value for value in planted},
        address=KafkaAddress(bootstrap),
        encode=encode,
    )
    return Leak(
        planted=report.planted,
        found=report.values,
        places=report.places,
        searched_bytes=report.searched_bytes,
    )
