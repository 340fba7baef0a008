"""Files of spans: OTLP/JSON requests (one, or one a line as a collector writes them) and the spans that the
JavaScript SDK prints. They go into the log as they are told, and are read like those of the gateway.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

from millstream.capture import otlp
from millstream.capture.otlp import Part, Refused, Signal
from millstream.capture.raw import RawEdge


def is_otlp(row: Any) -> bool:
    """Whether a row holds spans or log records."""
    return bool(otlp.signals_of(row)) or bool(_printed(row))


def parts(row: Any, edge: RawEdge) -> Iterator[tuple[Signal, Part | Refused]]:
    """Its lines."""
    spans = _printed(row)
    document = {"resourceSpans": [{"scopeSpans": [{"spans": [_as_otlp(span) for span in spans]}]}]} if spans else row
    for signal in otlp.signals_of(document):
        for part in otlp.parts(document, signal, edge):
            yield signal, part


def _printed(row: Any) -> list[dict[str, Any]]:
    """Spans of the JavaScript SDK: one, or lists of them by name."""
    if not isinstance(row, dict):
        return []
    if isinstance(row.get("spanContext"), dict):
        return [row]
    lists = [value for value in row.values() if isinstance(value, list)]
    found = list(chain.from_iterable(lists))
    inside = found and len(lists) == len(row)
    return found if inside and all(isinstance(one, dict) and "spanContext" in one for one in found) else []


def _as_otlp(span: dict[str, Any]) -> dict[str, Any]:
    context = span["spanContext"] if isinstance(span.get("spanContext"), dict) else {}
    parent = span.get("parentSpanContext")
    parent_id = span.get("parentSpanId") or (parent.get("spanId") if isinstance(parent, dict) else None)
    status = span.get("status") if isinstance(span.get("status"), dict) else {}
    happened = [one for one in span.get("events") or () if isinstance(one, dict)]
    return {
        "traceId": context.get("traceId"),
        "spanId": context.get("spanId"),
        "parentSpanId": parent_id or "",
        "name": span.get("name"),
        "startTimeUnixNano": _nanoseconds(span.get("startTime")),
        "endTimeUnixNano": _nanoseconds(span.get("endTime")),
        "attributes": span.get("attributes") if isinstance(span.get("attributes"), dict) else {},
        "events": [{**one, "timeUnixNano": _nanoseconds(one.get("time"))} for one in happened],
        "status": status,
    }


def _nanoseconds(value: Any) -> Any:
    """``[seconds, nanoseconds]`` as one number; anything else as it is."""
    if isinstance(value, list) and len(value) == 2 and all(isinstance(part, int) for part in value):
        return value[0] * 1_000_000_000 + value[1]
    return value
