"""A real Apache Kafka on this machine, without Java, Maven or Docker."""

from afterbay.platform.broker.embedded import EmbeddedBroker
from afterbay.platform.broker.lent import lent
from afterbay.platform.broker.reach import is_up, require

__all__ = ["EmbeddedBroker", "is_up", "lent", "require"]
