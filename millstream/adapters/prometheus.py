"""Metrics for Prometheus. A page holds what was last told, so a scrape never touches the log or the stores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from millstream.errors import MissingExtra
from millstream.metrics import ALL, Labels, Metric

if TYPE_CHECKING:
    from prometheus_client.core import GaugeMetricFamily

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""Of the text format that every scraper reads."""


class PrometheusMeter:
    """`millstream.metrics.Meter` on a registry of its own. Counters and gauges of the closed list only."""

    def __init__(self, known: Iterable[Metric] = ALL) -> None:
        try:
            from prometheus_client import CollectorRegistry, Counter, Histogram
        except ImportError:
            raise MissingExtra("serve", "[metrics] enabled") from None
        self.registry = CollectorRegistry()
        self._gauges: dict[Metric, Mapping[Labels, float]] = {}
        self._made: dict[Metric, Any] = {}
        for metric in known:
            if metric.kind == "counter":
                self._made[metric] = Counter(metric.name, metric.means, metric.labels, registry=self.registry)
            elif metric.kind == "histogram":
                made = Histogram(metric.name, metric.means, buckets=metric.buckets, registry=self.registry)
                self._made[metric] = made
            else:
                self._gauges[metric] = {}
        self.registry.register(self)

    def add(self, metric: Metric, labels: Labels = (), amount: float = 1.0) -> None:
        """Raise a counter."""
        counter = self._made[metric]
        (counter.labels(*labels) if labels else counter).inc(amount)

    def observe(self, metric: Metric, values: Sequence[float]) -> None:
        """Values of a histogram."""
        for value in values:
            self._made[metric].observe(value)

    def show(self, metric: Metric, values: Mapping[Labels, float]) -> None:
        """Every series of a gauge, as it is now."""
        if metric not in self._gauges:
            raise KeyError(metric.name)
        self._gauges[metric] = dict(values)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The gauges, for the registry."""
        from prometheus_client.core import GaugeMetricFamily

        for metric, values in self._gauges.items():
            family = GaugeMetricFamily(metric.name, metric.means, labels=metric.labels)
            for labels, value in values.items():
                family.add_metric(labels, value)
            yield family

    def page(self) -> bytes:
        """All figures, in Prometheus's text format."""
        from prometheus_client import generate_latest

        return generate_latest(self.registry)
