"""OTLP requests in protobuf as the documents that OTLP/JSON would hold: the one door to opentelemetry-proto.

Ids are hex, times whole numbers, and attributes are objects already. Members that say nothing are left out.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from millstream.errors import Undecodable


def decoded(body: bytes, signal: Literal["spans", "logs"]) -> dict[str, Any]:
    """The document of a request. Raises `Undecodable` for bytes that are none."""
    try:
        if signal == "spans":
            return _spans(ExportTraceServiceRequest.FromString(body))
        return _logs(ExportLogsServiceRequest.FromString(body))
    except (DecodeError, RecursionError) as error:
        raise Undecodable(f"not an OTLP request in protobuf: {error}") from None


def _spans(request: Any) -> dict[str, Any]:
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": _attributes(group.resource.attributes)},
                "scopeSpans": [
                    {"scope": _scope(scoped.scope), "spans": [_span(span) for span in scoped.spans]}
                    for scoped in group.scope_spans
                ],
            }
            for group in request.resource_spans
        ]
    }


def _logs(request: Any) -> dict[str, Any]:
    return {
        "resourceLogs": [
            {
                "resource": {"attributes": _attributes(group.resource.attributes)},
                "scopeLogs": [
                    {"scope": _scope(scoped.scope), "logRecords": [_log(record) for record in scoped.log_records]}
                    for scoped in group.scope_logs
                ],
            }
            for group in request.resource_logs
        ]
    }


def _scope(scope: Any) -> dict[str, Any]:
    return _told({"name": scope.name, "version": scope.version, "attributes": _attributes(scope.attributes)})


def _span(span: Any) -> dict[str, Any]:
    return _told(
        {
            "traceId": span.trace_id.hex(),
            "spanId": span.span_id.hex(),
            "parentSpanId": span.parent_span_id.hex(),
            "traceState": span.trace_state,
            "flags": span.flags,
            "name": span.name,
            "kind": span.kind,
            "startTimeUnixNano": span.start_time_unix_nano,
            "endTimeUnixNano": span.end_time_unix_nano,
            "attributes": _attributes(span.attributes),
            "events": [_event(event) for event in span.events],
            "links": [_link(link) for link in span.links],
            "status": _told({"code": span.status.code, "message": span.status.message}),
        }
    )


def _event(event: Any) -> dict[str, Any]:
    return _told(
        {"name": event.name, "timeUnixNano": event.time_unix_nano, "attributes": _attributes(event.attributes)}
    )


def _link(link: Any) -> dict[str, Any]:
    return _told(
        {"traceId": link.trace_id.hex(), "spanId": link.span_id.hex(), "attributes": _attributes(link.attributes)}
    )


def _log(record: Any) -> dict[str, Any]:
    return _told(
        {
            "traceId": record.trace_id.hex(),
            "spanId": record.span_id.hex(),
            "timeUnixNano": record.time_unix_nano,
            "observedTimeUnixNano": record.observed_time_unix_nano,
            "severityNumber": record.severity_number,
            "eventName": record.event_name,
            "attributes": _attributes(record.attributes),
            "body": _value(record.body),
        }
    )


def _told(members: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value not in ("", 0, None, [], {})}


def _attributes(pairs: Iterable[Any]) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    told = getattr(value, kind)
    if kind == "array_value":
        return [_value(one) for one in told.values]
    if kind == "kvlist_value":
        return _attributes(told.values)
    return base64.b64encode(told).decode() if kind == "bytes_value" else told
