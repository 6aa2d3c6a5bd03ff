"""Is there a Kafka at an address?

In:   bootstrap addresses
Out:  yes or no (`is_up`), or an error that says what to do (`require`)
"""

from __future__ import annotations

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from afterbay.schemas.errors import Unavailable


def is_up(bootstrap: str, timeout_s: float = 1.0) -> bool:
    """Whether a broker answers a metadata request within `timeout_s`."""
    # log_level 0: the very question is whether the connection is refused; that is no news
    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    try:
        return bool(client.list_topics(timeout=timeout_s).brokers)
    except KafkaException:
        return False


def require(bootstrap: str, timeout_s: float = 5.0) -> None:
    """Unavailable, with the next step, unless a broker answers."""
    if not is_up(bootstrap, timeout_s):
        raise Unavailable(
            f"no Kafka answers at {bootstrap} within {timeout_s:g} s; start one with "
            "`afterbay up`, or set AFTERBAY_BOOTSTRAP to the address of yours; `afterbay status` "
            "shows what runs"
        )
