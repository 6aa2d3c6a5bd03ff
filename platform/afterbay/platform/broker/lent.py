"""A Kafka for a command that needs the log while nothing else of the home runs.

In:   a home, the address its settings name, the environment
Out:  an address at which Kafka answers, for as long as the block runs
Refuses: with Unavailable, if there is neither a broker that answers nor one of this home's own
Never: leaves a broker running that it started
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from afterbay.platform.broker.embedded import EmbeddedBroker
from afterbay.platform.broker.reach import is_up, require
from afterbay.platform.home import Home

_HEAP_MB = 512


@contextmanager
def lent(home: Home, bootstrap: str, environ: Mapping[str, str]) -> Iterator[str]:
    """`bootstrap` if a broker answers there, else the home's own embedded one, started for now."""
    if is_up(bootstrap) or environ.get("AFTERBAY_BOOTSTRAP") or not _has_data(home):
        require(bootstrap)
        yield bootstrap
        return
    kafka_home = environ.get("KAFKA_HOME")
    own = EmbeddedBroker(
        home, kafka_home=Path(kafka_home) if kafka_home else None, heap_mb=_HEAP_MB, quick=True
    )
    try:
        own.start(environ)
        yield own.bootstrap
    finally:
        own.stop()


def _has_data(home: Home) -> bool:
    return (home.broker / "data" / "meta.properties").exists()
