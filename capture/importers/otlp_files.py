"""Files of spans: OTLP/JSON requests (one, or one a line as a collector writes them), traces of MLflow, and the
spans that the JavaScript SDK prints. They go into the log as they are told, and are read like those of the gateway.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from itertools import chain
from typing import Any

from millstream.capture import otlp
from millstream.capture.otlp import Part, Refused, Signal
from millstream.capture.raw import RawEdge


def is_otlp(row: Any) -> bool:
    """Whether a row holds spans or log records."""
    return bool(otlp.signals_of(row)) or bool(_printed(row)) or is_mlflow(row)


def is_mlflow(row: Any) -> bool:
    """Whether a row is a trace of MLflow as ``Trace.to_json`` writes it."""
    return isinstance(row, dict) and isinstance(row.get("info"), dict) and bool(_objects(row.get("data"), "spans"))


def parts(row: Any, edge: RawEdge) -> Iterator[tuple[Signal, Part | Refused]]:
    """Its lines."""
    document = _document(row)
    for signal in otlp.signals_of(document):
        for part in otlp.parts(document, signal, edge):
            yield signal, part


def _document(row: dict[str, Any]) -> dict[str, Any]:
    """The row as an OTLP request."""
    if otlp.signals_of(row):
        return row
    if is_mlflow(row):
        told = [_of_mlflow(span) for span in _objects(row["data"], "spans")]
        known = _object(row["info"].get("trace_metadata"))
        resource = {name: known[name] for name in ("mlflow.trace.session", "mlflow.trace.user") if name in known}
        return {"resourceSpans": [{"resource": {"attributes": resource}, "scopeSpans": [{"spans": told}]}]}
    return {"resourceSpans": [{"scopeSpans": [{"spans": [_as_otlp(span) for span in _printed(row)]}]}]}


def _of_mlflow(span: dict[str, Any]) -> dict[str, Any]:
    """Its ids are bytes in base64, its names are those of protobuf."""
    status = _object(span.get("status"))
    return {
        "traceId": _hex(span.get("trace_id")),
        "spanId": _hex(span.get("span_id")),
        "parentSpanId": _hex(span.get("parent_span_id")),
        "name": span.get("name"),
        "startTimeUnixNano": span.get("start_time_unix_nano"),
        "endTimeUnixNano": span.get("end_time_unix_nano"),
        "attributes": _object(span.get("attributes")),
        "events": [{**one, "timeUnixNano": one.get("time_unix_nano")} for one in _objects(span, "events")],
        "status": status,
    }


def _hex(value: Any) -> str:
    text = value if isinstance(value, str) else ""
    try:
        return base64.b64decode(text, validate=True).hex()
    except ValueError:
        return text


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _objects(holder: Any, name: str) -> list[dict[str, Any]]:
    value = _object(holder).get(name)
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


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
    return {
        "traceId": context.get("traceId"),
        "spanId": context.get("spanId"),
        "parentSpanId": parent_id or "",
        "name": span.get("name"),
        "startTimeUnixNano": _nanoseconds(span.get("startTime")),
        "endTimeUnixNano": _nanoseconds(span.get("endTime")),
        "attributes": _object(span.get("attributes")),
        "events": [{**one, "timeUnixNano": _nanoseconds(one.get("time"))} for one in _objects(span, "events")],
        "status": _object(span.get("status")),
    }


def _nanoseconds(value: Any) -> Any:
    """``[seconds, nanoseconds]`` as one number; anything else as it is."""
    if isinstance(value, list) and len(value) == 2 and all(isinstance(part, int) for part in value):
        return value[0] * 1_000_000_000 + value[1]
    return value
