"""What leaves the log for other tools: grades as OpenTelemetry events."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from millstream.bootstrap.parts import require
from millstream.codec import digest
from millstream.errors import SettingsError
from millstream.streams.evaluations import EvaluationExporter, Sink

if TYPE_CHECKING:
    from millstream.bootstrap.runtime import Runtime


def exporters(runtime: Runtime) -> list[EvaluationExporter]:
    """The exporter of grades, where the settings name a file or a URL. Raises `SettingsError` for one that is none."""
    target = runtime.loaded.settings.export.evaluations
    return [EvaluationExporter(runtime.log, _sink(runtime, target))] if target else []


def _sink(runtime: Runtime, target: str) -> Sink:
    """The sink; its place is that of this target, so that another one begins at the beginning."""
    from millstream.adapters.otlp import OtlpFile, OtlpHttp, headers_of

    place = runtime.loaded.data / f"evaluations-{digest(target)[:8]}.json"
    if "://" not in target:
        return OtlpFile(runtime.loaded.path(target), place)
    if not target.startswith(("http://", "https://")):
        raise SettingsError(f"[export] evaluations = {target!r}: a file, or the http:// URL of a collector (…/v1/logs)")
    require("[export] evaluations to a collector", "graders")
    from millstream.adapters.http_client import HttpPoster

    poster = HttpPoster(connections=1)
    runtime.on_close(poster.close)
    return OtlpHttp(poster, target, headers_of(os.environ.get("OTEL_EXPORTER_OTLP_HEADERS", "")), place)
