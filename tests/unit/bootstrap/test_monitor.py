"""Health and readiness: what the probes say, by a clock that is moved by hand."""

from __future__ import annotations

import contextlib
import http.client

import pytest

from millstream import metrics
from millstream.adapters.clock import ManualClock
from millstream.adapters.http_server import Server
from millstream.adapters.prometheus import PrometheusMeter
from millstream.adapters.sqlite import open_sqlite
from millstream.bootstrap.monitor import Health, Monitor, routes
from millstream.serving import Door


class Seconds:
    """A clock that is moved by hand."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def seconds():
    return Seconds()


@pytest.fixture
def health(seconds):
    return Health(60.0, seconds)


@pytest.fixture
def meter():
    return PrometheusMeter()


def test_ready_only_after_the_first_turn(health):
    """A process that has done nothing yet is alive and not ready."""
    assert (health.alive(), health.ready()) == ([], ["starting"])
    health.beat()
    assert health.ready() == []


def test_a_loop_that_hangs_is_unhealthy(health, seconds):
    """After `stalled_s` without a turn a restart is due; one more turn and it is not."""
    health.beat()
    seconds.now += 61
    assert health.alive() == ["the loop has not turned for 61 s"]
    assert health.ready() == health.alive()
    health.beat()
    assert health.alive() == []


def test_waiting_is_alive_and_not_ready(health, seconds):
    """Something outside that is away is no reason to restart, as long as it is tried again."""
    health.beat()
    for _ in range(5):
        seconds.now += 50
        health.wait("grade", "broker away")
    assert (health.alive(), health.ready()) == ([], ["grade waits: broker away"])
    health.wait("grade", "")
    assert health.ready() == []


def test_waits_are_shown_and_counted_once_each(meter, health, seconds, tmp_path):
    """A worker that says at every turn that it waits is one wait; a stage tells each try."""
    opened = open_sqlite(tmp_path / "log.db", clock=ManualClock())
    monitor = Monitor(meter, health, opened.log, 5.0)
    monitor.look_at(list)
    for _ in range(3):
        monitor.turn({"buffer default": "full"})
    monitor.waiting("grade", "away")
    monitor.waiting("grade", "away")
    value = meter.registry.get_sample_value
    assert value("millstream_waits_total", {"part": "buffer default"}) == 1
    assert value("millstream_waits_total", {"part": "grade"}) == 2
    assert value("millstream_waiting", {"part": "grade"}) == 1
    monitor.waiting("grade", "")
    assert value("millstream_waiting", {"part": "grade"}) is None
    opened.close()


def test_pages_and_probes(meter, health, seconds):
    """Metrics are text for Prometheus; a probe answers 200, or 503 with its reasons; all behind the token."""
    token = "a-token-that-is-long-enough"
    meter.add(metrics.WAITS, ("grade",))
    with Server(routes(meter, health), Door(token=token)) as server:

        def ask(path, **headers):
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
            with contextlib.closing(connection):
                connection.request("GET", path, headers=headers)
                answer = connection.getresponse()
                return answer.status, answer.read().decode()

        shown = {"Authorization": f"Bearer {token}"}
        status, text = ask("/metrics", **shown)
        assert status == 200
        assert 'millstream_waits_total{part="grade"} 1.0' in text
        assert ask("/readyz", **shown) == (503, "starting\n")
        health.beat()
        assert ask("/readyz", **shown) == ask("/healthz", **shown) == (200, "ok\n")
        health.wait("grade", "broker away")
        assert ask("/readyz", **shown) == (503, "grade waits: broker away\n")
        seconds.now += 61
        assert ask("/healthz", **shown) == (503, "the loop has not turned for 61 s\n")
        assert {ask(path)[0] for path in ("/metrics", "/healthz", "/readyz")} == {401}
