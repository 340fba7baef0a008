"""OTLP at the edge: a request into lines of single spans or log records, each with its resource and scope.

A document is what OTLP/JSON says; lists of key and value become objects, all else stays as it was told. Requests in
protobuf are turned into the same documents by an adapter, with attributes that are objects already.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

from millstream.capture.raw import RawEdge, fingerprint
from millstream.dialects.reading import LOGS, SHARES, SPANS, mapped
from millstream.dialects.spans import identity
from millstream.errors import EventError
from millstream.events import NO_RUN
from millstream.settings import Capture

Signal: TypeAlias = Literal["spans", "logs"]
DIALECT_OF: Final[Mapping[Signal, str]] = {"spans": SPANS, "logs": LOGS}
_NAMES: Final = {
    "spans": ("resourceSpans", "scopeSpans", "spans", "span"),
    "logs": ("resourceLogs", "scopeLogs", "logRecords", "log"),
}


class Part(Struct, frozen=True):
    """A line for the log and its key; ``problem``: why no trajectory can come of it, '' when one can."""

    key: str
    line: bytes
    problem: str = ""


class Refused(Struct, frozen=True):
    """A span that may not be stored, and why."""

    reason: str


def headers(signal: Signal, capture: Capture) -> dict[str, str]:
    """The headers of records of these lines."""
    return {"dialect": DIALECT_OF[signal], "schema": "1", SHARES: ",".join(f"{share:g}" for share in capture.shares)}


def signals_of(document: Any) -> list[Signal]:
    """What a document holds."""
    found = document if isinstance(document, dict) else {}
    return [signal for signal, names in _NAMES.items() if isinstance(found.get(names[0]), list)]  # type: ignore[misc]


def parts(document: Mapping[str, Any], signal: Signal, edge: RawEdge) -> Iterator[Part | Refused]:
    """The lines of a document, in order."""
    for told in things(document, signal):
        try:
            thing = {name: _plain(value) for name, value in told.items()}
            line = edge.line(thing)
        except (EventError, ValueError, TypeError, RecursionError) as error:
            yield Refused(str(error) or type(error).__name__)
            continue
        try:
            yield Part(_key(thing[_NAMES[signal][3]], line, signal), line)
        except EventError as error:
            yield Part(fingerprint(line), line, str(error))


def _key(thing: Mapping[str, Any], line: bytes, signal: Signal) -> str:
    """The trajectory that a line is of, `NO_RUN` for an evaluation that names a response in place of a trace. Raises
    `InvalidTrace`.
    """
    try:
        return identity(thing, "traceId")
    except EventError:
        if signal == "logs" and mapped(line, {"dialect": DIALECT_OF[signal]}).trajectory_id == NO_RUN:
            return NO_RUN
        raise


def things(document: Mapping[str, Any], signal: Signal) -> Iterator[dict[str, Any]]:
    """Each span or log record with its resource and scope, as told."""
    outer, middle, inner, name = _NAMES[signal]
    for group in _objects(document.get(outer)):
        resource = _object(group.get("resource")).get("attributes")
        for scoped in _objects(group.get(middle)):
            scope = _object(scoped.get("scope"))
            for thing in _objects(scoped.get(inner)):
                yield {"resource": _attributes(resource), "scope": scope, name: thing}


def _objects(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _attributes(value: Any) -> dict[str, Any]:
    if not isinstance(value, list):
        return _object(value)
    return {str(one["key"]): any_value(one.get("value")) for one in value if isinstance(one, dict) and "key" in one}


def _plain(value: Any) -> Any:
    """The same with each ``attributes`` an object and each ``body`` a value."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if not isinstance(value, dict):
        return value
    made: dict[str, Any] = {}
    for name, one in value.items():
        if name == "attributes":
            made[name] = _attributes(one)
        elif name == "body":
            made[name] = any_value(one)
        else:
            made[name] = _plain(one)
    return made


def any_value(value: Any) -> Any:
    """An AnyValue as JSON: numbers as numbers (a whole one may come as text), NaN and infinities as null."""
    if not isinstance(value, dict) or len(value) != 1:
        return value
    ((kind, told),) = value.items()
    if kind == "arrayValue":
        return [any_value(one) for one in _object(told).get("values") or ()]
    if kind == "kvlistValue":
        return _attributes(_object(told).get("values") or [])
    if kind == "intValue":
        return int(told) if isinstance(told, str) and len(told) < 21 and told.lstrip("-").isdigit() else told
    if kind == "doubleValue":
        return _double(told)
    return told if kind in ("stringValue", "boolValue", "bytesValue") else value


def _double(told: Any) -> float | None:
    try:
        found = float(told)
    except (TypeError, ValueError):
        return None
    return found if math.isfinite(found) else None
