"""Jobs that `afterbay up` runs once before the agents: topics, tables, Dagster's database.

In:   the process's environment; `python -m afterbay.platform.prepare topics|tables|dagster`
Out:  what is missing is made; an exit code
Never: changes what is there; they are processes of their own so that the supervisor stays small
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

from afterbay.platform.settings import Settings
from afterbay.schemas.errors import AfterbayError, BadSettings, Unavailable

_KAFKA_TIMEOUT_S = 60.0


def make_topics(settings: Settings) -> tuple[str, ...]:
    """Make every topic that is missing; names of those made. Waits for a Kafka that starts up."""
    from afterbay.streams.admin import ensure_topics  # noqa: PLC0415  # each job loads its own
    from afterbay.streams.kafka import KafkaAddress  # noqa: PLC0415  # half of the libraries

    address = KafkaAddress(settings.bootstrap, settings.prefix)
    end = time.monotonic() + _KAFKA_TIMEOUT_S
    while True:
        try:
            return ensure_topics(address, settings.partitions)
        except Unavailable:
            if time.monotonic() > end:
                raise


def make_tables(settings: Settings) -> None:
    """Make every table that is missing."""
    from afterbay.lakehouse import tables  # noqa: PLC0415  # as above
    from afterbay.lakehouse.lake import Lake  # noqa: PLC0415  # as above

    tables.ensure(Lake(str(settings.home.lake)))


def make_dagster(settings: Settings) -> None:
    """Make Dagster's database on first use."""
    from afterbay.platform.orchestrator import prepare_dagster  # noqa: PLC0415  # as above

    prepare_dagster(settings.home)


JOBS: dict[str, Callable[[Settings], object]] = {
    "topics": make_topics,
    "tables": make_tables,
    "dagster": make_dagster,
}


def main(arguments: list[str]) -> int:
    """Run one job; the exit code."""
    try:
        job = JOBS.get(arguments[0] if arguments else "")
        if job is None:
            raise BadSettings(f"expected one job of: {', '.join(JOBS)}")
        job(Settings.from_env(os.environ))
    except AfterbayError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
