"""The Prometheus adapter: the closed list, the server, its probes and who may ask."""

from __future__ import annotations

import http.client
import socket
from urllib.parse import urlsplit

import pytest

from millstream import metrics
from millstream.adapters.prometheus import MetricsServer, PrometheusMeter
from millstream.errors import SettingsError


def ask(url, path, headers=None):
    """Status and text of one GET."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=10)
    try:
        connection.request("GET", path, headers=headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


@pytest.fixture
def meter():
    return PrometheusMeter()


@pytest.fixture
def serve(meter):
    """Start a server; all are closed at the end."""
    started = []

    def start(token="", alive=list, ready=list, host="127.0.0.1", port=0):
        started.append(MetricsServer(meter, host=host, port=port, token=token, alive=alive, ready=ready))
        return started[-1].url

    yield start
    for server in started:
        server.close()


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


def test_pages_and_probes(meter, serve):
    """Metrics are text for Prometheus, a probe answers 200 or 503 with its reasons, anything else 404."""
    meter.add(metrics.WAITS, ("grade",))
    url = serve(ready=lambda: ["grade waits: broker away"])
    status, text = ask(url, "/metrics")
    assert status == 200
    assert 'millstream_waits_total{part="grade"} 1.0' in text
    assert ask(url, "/healthz") == (200, "ok\n")
    assert ask(url, "/readyz") == (503, "grade waits: broker away\n")
    assert ask(url, "/other")[0] == 404


def test_without_a_token_another_host_name_is_refused(serve):
    """A page in a browser cannot read the figures by a name that it makes point here."""
    url = serve()
    assert ask(url, "/metrics", {"Host": "evil.example"})[0] == 403
    assert ask(url, "/metrics", {"Host": f"localhost:{urlsplit(url).port}"})[0] == 200


def test_with_a_token_only_probes_of_this_machine_go_without(serve):
    """Metrics want the token; a health check from inside the container does not."""
    url = serve(token="s3cret")
    assert ask(url, "/metrics")[0] == 403
    assert ask(url, "/metrics", {"Authorization": "Bearer wrong"})[0] == 403
    assert ask(url, "/metrics", {"Authorization": "Bearer s3cret", "Host": "assemble:9464"})[0] == 200
    assert ask(url, "/healthz")[0] == 200
    assert ask(url, "/healthz", {"Host": "assemble:9464"})[0] == 403


def test_outside_hosts_need_a_token_and_a_taken_port_is_told(serve):
    """Both are settings to mend, said in one line."""
    with pytest.raises(SettingsError, match="token_file or MILLSTREAM_TOKEN"):
        serve(host="0.0.0.0")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(SettingsError, match=r"port = .* in use"):
            serve(port=taken.getsockname()[1])
