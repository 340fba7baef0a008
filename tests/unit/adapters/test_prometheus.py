"""The Prometheus adapter: the closed list, whole gauges, and the page."""

from __future__ import annotations

import pytest

from millstream import metrics
from millstream.adapters.prometheus import PrometheusMeter


@pytest.fixture
def meter():
    return PrometheusMeter()


def test_every_metric_of_the_list_can_be_told(meter):
    """Each member has a sound name, and counters, histograms and gauges all come out with their labels."""
    for metric in metrics.ALL:
        labels = tuple(f"some {name}" for name in metric.labels)
        if metric.kind == "counter":
            assert metric.name.endswith("_total")
            meter.add(metric, labels, 2)
            assert meter.registry.get_sample_value(metric.name, dict(zip(metric.labels, labels, strict=True))) == 2
        elif metric.kind == "histogram":
            meter.observe(metric, [0.3])
            assert meter.registry.get_sample_value(f"{metric.name}_count") == 1
        else:
            meter.show(metric, {labels: 3.0})
            assert meter.registry.get_sample_value(metric.name, dict(zip(metric.labels, labels, strict=True))) == 3
    assert len({metric.name for metric in metrics.ALL}) == len(metrics.ALL)


def test_a_metric_that_is_not_in_the_list_is_refused(meter):
    """The list is closed."""
    with pytest.raises(KeyError):
        meter.show(metrics.Metric("other", "gauge", (), "?"), {})


def test_series_that_are_gone_are_not_told(meter):
    """A partition that another process has taken over leaves no stale figure behind."""
    meter.show(metrics.OPEN, {("0",): 1, ("1",): 2})
    meter.show(metrics.OPEN, {("1",): 3})
    assert meter.registry.get_sample_value(metrics.OPEN.name, {"partition": "0"}) is None
    assert meter.registry.get_sample_value(metrics.OPEN.name, {"partition": "1"}) == 3


def test_the_page_is_prometheus_text(meter):
    """Each metric has its help and its type, counters keep their ending."""
    meter.add(metrics.WAITS, ("grade",))
    page = meter.page().decode()
    assert "# TYPE millstream_waits_total counter" in page
    assert 'millstream_waits_total{part="grade"} 1.0' in page
    assert f"# HELP millstream_lag_records {metrics.LAG.means}" in page
