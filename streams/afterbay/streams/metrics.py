"""What an agent tells about itself: its numbers, in Prometheus's text format.

In:   counts and times from an agent's own code
Out:  one `Metrics` a process, with its own registry; `text()` for the /metrics port
Never: a label that names a person, a session or an id; a registry shared by import
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics import MetricWrapperBase

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """Numbers of one agent. Made by the entry point, written by the agent, read over its port."""

    def __init__(self, agent: str) -> None:
        self.agent = agent
        self.registry = CollectorRegistry()
        self._made: dict[str, MetricWrapperBase] = {}

    def counter(self, name: str, help_text: str, labels: tuple[str, ...] = ()) -> Counter:
        """A counter `afterbay_<agent>_<name>`; the same one for the same name."""
        found = self._made.get(name)
        if not isinstance(found, Counter):
            found = Counter(self._full(name), help_text, labels, registry=self.registry)
            self._made[name] = found
        return found

    def gauge(self, name: str, help_text: str, labels: tuple[str, ...] = ()) -> Gauge:
        """A gauge `afterbay_<agent>_<name>`."""
        found = self._made.get(name)
        if not isinstance(found, Gauge):
            found = Gauge(self._full(name), help_text, labels, registry=self.registry)
            self._made[name] = found
        return found

    def seconds(self, name: str, help_text: str, labels: tuple[str, ...] = ()) -> Histogram:
        """A histogram of durations `afterbay_<agent>_<name>_seconds`."""
        found = self._made.get(name)
        if not isinstance(found, Histogram):
            full = f"{self._full(name)}_seconds"
            found = Histogram(full, help_text, labels, buckets=_SECONDS, registry=self.registry)
            self._made[name] = found
        return found

    def text(self) -> bytes:
        """All numbers in Prometheus's text format."""
        return generate_latest(self.registry)

    def _full(self, name: str) -> str:
        return f"afterbay_{self.agent.partition('/')[0].replace('-', '_')}_{name}"
