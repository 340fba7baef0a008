"""Metrics for Prometheus, and the small server that gives them: ``/metrics``, ``/healthz``, ``/readyz``.

The server runs in threads of its own and only hands out what was last told, so a scrape never touches the
log or the stores. It listens on loopback unless told otherwise, and then it wants a token.
"""

from __future__ import annotations

import hmac
import ipaddress
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from millstream.errors import MissingExtra, SettingsError
from millstream.metrics import ALL, Labels, Metric

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

    from prometheus_client.core import GaugeMetricFamily

PLAIN = ("Content-Type", "text/plain; charset=utf-8")
LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
Probe = Callable[[], Sequence[str]]
"""What is wrong now, a line each; empty: nothing."""


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


class MetricsServer:
    """Gives a meter's figures, and what two probes say: ``alive`` (restart me when it says something) and
    ``ready`` (I wait for what it names). ``port`` 0 takes a free one; see `url`.

    With a token every request must carry it, but for probes from this very machine (a container's health check).
    Raises `SettingsError` when the port is taken, or for a host that is not loopback without a token.
    """

    def __init__(
        self, meter: PrometheusMeter, *, host: str, port: int, token: str = "", alive: Probe, ready: Probe
    ) -> None:
        from prometheus_client import make_wsgi_app

        if not is_loopback(host) and not token:
            raise SettingsError(
                f"[metrics] host = {host!r} can be reached from outside: set [metrics] token_file or MILLSTREAM_TOKEN, "
                "or use 127.0.0.1"
            )
        self._token = token
        self._probes = {"/healthz": alive, "/readyz": ready}
        self._metrics = make_wsgi_app(meter.registry)
        try:
            self._server = make_server(host, port, self._answer, _Server, _Quiet)
        except OSError as error:
            raise SettingsError(
                f"[metrics] port = {port} on {host}: {error.strerror}; choose another, or 0 for a free one"
            ) from None
        self.url = f"http://{host}:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.2,), name="metrics", daemon=True).start()

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        if not self._allowed(environ):
            start("403 Forbidden", [PLAIN])
            return [b"send the token as Authorization: Bearer, or ask this machine by its own name\n"]
        path = str(environ.get("PATH_INFO", ""))
        if path == "/metrics":
            found: Iterable[bytes] = self._metrics(environ, start)
            return found
        if path not in self._probes:
            start("404 Not Found", [PLAIN])
            return [b"/metrics, /healthz or /readyz\n"]
        wrong = self._probes[path]()
        start("503 Service Unavailable" if wrong else "200 OK", [PLAIN])
        return [("\n".join(wrong or ["ok"]) + "\n").encode()]

    def _allowed(self, environ: WSGIEnvironment) -> bool:
        host = str(environ.get("HTTP_HOST", "")).lower().removesuffix(f":{self._server.server_port}")
        if not self._token:
            return host in LOCAL_NAMES
        given = str(environ.get("HTTP_AUTHORIZATION", "")).encode()
        if hmac.compare_digest(given, f"Bearer {self._token}".encode()):
            return True
        local = host in LOCAL_NAMES and is_loopback(str(environ.get("REMOTE_ADDR", "")))
        return local and environ.get("PATH_INFO") in self._probes


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    timeout = 10

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches it."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
