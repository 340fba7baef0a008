"""The monitor of a process that runs stages: metrics, health and readiness (`[metrics] enabled`).

The loop calls `turn` each time round; gauges are looked at there, in the loop's own thread, every
`[metrics] sample_s`. **Healthy** (``/healthz``): the loop has turned, or tried again what is unavailable,
within `[metrics] stalled_s`; when it has not, a restart is the mend. **Ready** (``/readyz``): it has
turned at least once and waits for nothing outside.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from millstream import metrics
from millstream.bootstrap.parts import require
from millstream.console.gauges import Gauges
from millstream.errors import Unavailable
from millstream.ports import BufferStats, Consumed, Log, Output
from millstream.serving import Response, Route
from millstream.streams.metering import Metering, Watch
from millstream.streams.runner import StageRunner

if TYPE_CHECKING:
    from millstream.adapters.prometheus import PrometheusMeter
    from millstream.bootstrap.runtime import Runtime
    from millstream.metrics import Meter

logger = logging.getLogger(__name__)


class Health:
    """What the probes say. Any thread; ``clock`` counts seconds."""

    def __init__(self, stalled_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.stalled_s = stalled_s
        self.clock = clock
        self._lock = threading.Lock()
        self._beat = clock()
        self._turned = False
        self._waits: dict[str, str] = {}

    def beat(self) -> None:
        """The loop has turned."""
        self._beat, self._turned = self.clock(), True

    def wait(self, part: str, why: str) -> None:
        """``part`` waits for something outside, or goes on ('')."""
        self._beat = self.clock()
        with self._lock:
            if why:
                self._waits[part] = why
            else:
                self._waits.pop(part, None)

    def waits(self) -> dict[str, str]:
        """Who waits, and why."""
        with self._lock:
            return dict(self._waits)

    def alive(self) -> list[str]:
        """Why a restart is due; empty: it is not."""
        quiet = self.clock() - self._beat
        return [f"the loop has not turned for {quiet:.0f} s"] if quiet > self.stalled_s else []

    def ready(self) -> list[str]:
        """Why no work is done now; empty: it is."""
        starting = [] if self._turned else ["starting"]
        return [*starting, *self.alive(), *(f"{part} waits: {why}" for part, why in sorted(self.waits().items()))]


class Monitor:
    """Watches the runners it is given to (it is their `Watch`) and shows what it sees."""

    def __init__(self, meter: Meter, health: Health, log: Log, sample_s: float) -> None:
        self.meter = meter
        self.health = health
        self.log = log
        self.sample_s = sample_s
        self.gauges: Gauges | None = None
        self._metering: Watch = Metering(meter, log.now_ms)
        self._next = 0.0

    def committed(self, stage: str, consumed: Sequence[Consumed], outputs: Sequence[Output]) -> None:
        """A group was committed."""
        self._metering.committed(stage, consumed, outputs)

    def waiting(self, stage: str, why: str) -> None:
        """A stage tries again what is unavailable, or goes on ('')."""
        self._metering.waiting(stage, why)
        self.health.wait(stage, why)
        self._show_waits()

    def look_at(
        self,
        runners: Callable[[], Iterable[StageRunner]],
        *,
        buffers: Callable[[], Mapping[str, BufferStats]] = dict,
        missing: Callable[[], Mapping[str, int]] = dict,
        policies: bool = False,
    ) -> None:
        """Where the gauges come from; see `Gauges`."""
        self.gauges = Gauges(self.log, self.meter, runners, buffers=buffers, missing=missing, policies=policies)

    def turn(self, waits: Mapping[str, str] | None = None) -> None:
        """The loop has turned; ``waits``: what workers beside the stages say of themselves (part → why, or '')."""
        for part, why in (waits or {}).items():
            if why and part not in self.health.waits():
                self._metering.waiting(part, why)
            self.health.wait(part, why)
        self.health.beat()
        now = self.health.clock()
        if self.gauges and now >= self._next:
            self._next = now + self.sample_s
            self._show_waits()
            try:
                self.gauges.look()
            except Unavailable as error:
                logger.info("gauges keep their last values: %s", error)

    def _show_waits(self) -> None:
        self.meter.show(metrics.WAITING, {(part,): 1.0 for part in self.health.waits()})


def start(runtime: Runtime) -> Monitor | None:
    """The monitor of a runtime, its server running until the runtime closes; None when metrics are off.
    Raises `SettingsError`, and `Unavailable` for a port that is taken.
    """
    settings = runtime.loaded.settings.metrics
    if not settings.enabled:
        return None
    require("[metrics] enabled", "serve")
    from millstream.adapters.prometheus import PrometheusMeter
    from millstream.bootstrap.serving import door_of, server

    meter, health = PrometheusMeter(), Health(settings.stalled_s)
    token_file = runtime.loaded.path(settings.token_file) if settings.token_file else None
    running = server(routes(meter, health), door_of(runtime.loaded, settings.host, settings.port, token_file))
    running.__enter__()
    runtime.on_close(lambda: running.__exit__(None, None, None))
    sys.stderr.write(f"metrics at {running.url}/metrics\n")
    return Monitor(meter, health, runtime.log, settings.sample_s)


def routes(meter: PrometheusMeter, health: Health) -> list[Route]:
    """``/metrics`` and the two probes: 200 when nothing is wrong, else 503 with a line for each thing."""
    from millstream.adapters.prometheus import MEDIA_TYPE

    return [
        Route("GET", "/metrics", lambda _: Response(body=meter.page(), media_type=MEDIA_TYPE)),
        Route("GET", "/healthz", lambda _: _probed(health.alive())),
        Route("GET", "/readyz", lambda _: _probed(health.ready())),
    ]


def _probed(wrong: Sequence[str]) -> Response:
    body = "".join(f"{line}\n" for line in wrong or ["ok"])
    return Response(body=body.encode(), status=503 if wrong else 200, media_type="text/plain; charset=utf-8")
