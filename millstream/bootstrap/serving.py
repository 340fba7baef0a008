"""`millstream serve …`: a room's routes behind the one door that all servers share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import structs

from millstream import __version__, metrics
from millstream.bootstrap.parts import require
from millstream.capture import gateway
from millstream.capture.outlet import Counters
from millstream.capture.proxy.recorder import Recorder
from millstream.forwarding import TOKEN_HEADER
from millstream.graders.hosted import serving as hosted
from millstream.loading import Loaded
from millstream.serving import Door, Request, Response, Route, token_of

if TYPE_CHECKING:
    from millstream.adapters.http_server import Rest, Server
    from millstream.adapters.prometheus import PrometheusMeter
    from millstream.bootstrap.runtime import Runtime

FATES: Final = ("recorded", "sent", "spooled", "replayed", "refused", "lost", "failures")


def door_of(loaded: Loaded, host: str, port: int, token_file: Path | None) -> Door:
    """The door of the settings. Raises `SettingsError` for a host that needs a token and has none."""
    return Door(host=host, port=port, token=token_of(token_file), rules=loaded.settings.serve).checked()


def server(routes: Sequence[Route], door: Door, rest: Rest | None = None) -> Server:
    """A server that is bound and runs when told to; ``rest`` answers what no route names. Raises `MissingExtra`
    without its libraries.
    """
    require("millstream serve", "serve")
    from millstream.adapters.http_server import Server

    return Server(routes, door, rest)


def proxy_server(runtime: Runtime, upstream: str, door: Door) -> Server:
    """The proxy before an upstream, recording until it stops. Raises `SettingsError` for an upstream or
    policies that are none, `MissingExtra` without its libraries.
    """
    require("millstream serve proxy", "serve")
    from millstream.adapters.http_forward import Forwarder, Upstream

    rules = runtime.loaded.settings
    runtime.shared().checked()
    target, client, meter = Upstream(upstream), runtime.client(), meter_of()
    runtime.shared().tally.meter = meter
    recorder = Recorder(client, rules, meter, folder=runtime.loaded.data / "proxy")
    forwarder = Forwarder(target, rules.proxy, recorder, rules.serve.body_timeout_s)
    page = metrics_route(meter, lambda: show_fates(meter, client.counters))
    made = server([page], structs.replace(door, token_header=TOKEN_HEADER), forwarder)
    recorder.start()
    return made


def meter_of() -> PrometheusMeter:
    """The figures of one server."""
    from millstream.adapters.prometheus import PrometheusMeter

    return PrometheusMeter((metrics.INFO, *metrics.CAPTURED))


def metrics_route(meter: PrometheusMeter, look: Callable[[], object] = lambda: None) -> Route:
    """``GET /metrics``; ``look`` is called before."""
    from millstream.adapters.prometheus import MEDIA_TYPE

    def page(_: Request) -> Response:
        look()
        return Response(body=meter.page(), media_type=MEDIA_TYPE)

    meter.show(metrics.INFO, {(__version__,): 1.0})
    return Route("GET", "/metrics", page)


def show_fates(meter: PrometheusMeter, counters: Counters) -> None:
    """What became of the events of this process."""
    told = {name: float(getattr(counters, name)) for name in FATES}
    meter.show(metrics.CAPTURE_EVENTS, {(name,): value for name, value in told.items()})


def gateway_routes(runtime: Runtime) -> Sequence[Route]:
    """The gateway: telemetry into the log; its figures on ``/metrics``. Raises `MissingExtra` without its libraries."""
    require("millstream serve gateway", "serve")
    from millstream.adapters.otlp_requests import decoded

    meter = meter_of()
    return [
        *gateway.routes(runtime.log, runtime.loaded.settings, decoded, runtime.shared().checked(), meter),
        metrics_route(meter),
    ]


def grader_routes(runtime: Runtime) -> Sequence[Route]:
    """The hosted grader service."""
    return hosted.routes(runtime.loaded.settings.hosted, runtime.means)
