"""A line of a record of an OTLP dialect: one span, or one log record, with its resource and scope.

It is what OTLP/JSON tells, with lists of key and value as objects: ``{"resource": {…}, "scope": {"name", "version",
"attributes"}, "span": {…}}`` (or ``"log"``). Ids are hex, times nanoseconds, as numbers or as texts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct, field

from millstream.errors import EventError, Undecodable
from millstream.events import NO_RUN
from millstream.ndjson import UNREADABLE

_TRACE = re.compile(r"[0-9a-f]{32}")
_SPAN = re.compile(r"[0-9a-f]{16}")
_MOST_NS = 2**63
RESPONSE = "gen_ai.response.id"
"""What a log record without a trace may name instead."""
_REMOTE = 0x300
"""Both bits of OTLP's span flags that say: the parent is known to lie in another process."""


class InvalidTrace(EventError):
    """A span without a trace: its ids are missing, all zero or no hex."""

    reason = "invalid_trace"


class Happened(Struct, frozen=True, kw_only=True):
    """An event inside a span."""

    name: str = ""
    time_ns: int = 0
    attributes: dict[str, Any] = field(default_factory=dict)


class Span(Struct, frozen=True, kw_only=True):
    """A span, or a log record (``log`` True: it has a ``body``, and its ids may be empty)."""

    trace_id: str
    span_id: str
    parent_id: str = ""
    name: str = ""
    start_ns: int = 0
    end_ns: int = 0
    failed: bool = False
    message: str = ""
    remote: bool = False
    attributes: dict[str, Any] = field(default_factory=dict)
    happened: tuple[Happened, ...] = ()
    resource: dict[str, Any] = field(default_factory=dict)
    scope: str = ""
    log: bool = False
    body: Any = None

    @property
    def root(self) -> bool:
        """Whether the trace, as far as this process knows it, begins here."""
        return not self.log and (not self.parent_id or self.remote)

    @property
    def error(self) -> str:
        """What went wrong, '' when nothing did."""
        if not self.failed:
            return ""
        told = next((one.attributes.get("exception.message") for one in self.happened if one.name == "exception"), None)
        return next((str(text) for text in (self.message, told, self.attributes.get("error.type")) if text), "failed")


class _Status(Struct):
    code: int | str = 0
    message: str = ""


class _Scope(Struct):
    name: str = ""


class _Line(Struct):
    resource: dict[str, Any] = field(default_factory=dict)
    scope: _Scope = field(default_factory=_Scope)
    span: dict[str, Any] | None = None
    log: dict[str, Any] | None = None


_decode = msgspec.json.Decoder(_Line).decode


def decoded(line: bytes, holds: Literal["span", "log"]) -> Span:
    """The span of a line. Raises `Undecodable` for what is none, `InvalidTrace` for one without a trace."""
    try:
        told = _decode(line)
        thing = told.span if holds == "span" else told.log
        if thing is None:
            raise Undecodable(f"the line holds no {holds}")
        return (_span if holds == "span" else _log)(thing, told)
    except UNREADABLE as error:
        raise Undecodable(f"not a line of a {holds}: {error}") from None


def _span(told: Mapping[str, Any], line: _Line) -> Span:
    status = msgspec.convert(told.get("status") or {}, _Status)
    flags = told.get("flags")
    return Span(
        trace_id=identity(told, "traceId", _TRACE),
        span_id=identity(told, "spanId", _SPAN),
        parent_id=_optional(told, "parentSpanId", _SPAN),
        name=_text(told.get("name")),
        start_ns=nanoseconds(told, "startTimeUnixNano"),
        end_ns=nanoseconds(told, "endTimeUnixNano"),
        failed=status.code in (2, "STATUS_CODE_ERROR"),
        message=status.message,
        remote=isinstance(flags, int) and flags & _REMOTE == _REMOTE,
        attributes=_object(told.get("attributes")),
        happened=tuple(_happened(one) for one in told.get("events") or () if isinstance(one, dict)),
        resource=line.resource,
        scope=line.scope.name,
    )


def _log(told: Mapping[str, Any], line: _Line) -> Span:
    time_ns = nanoseconds(told, "timeUnixNano") or nanoseconds(told, "observedTimeUnixNano")
    attributes = _object(told.get("attributes"))
    answered = _text(attributes.get(RESPONSE)) and not _text(told.get("traceId")).strip("0")
    return Span(
        trace_id=NO_RUN if answered else identity(told, "traceId", _TRACE),
        span_id=_optional(told, "spanId", _SPAN),
        name=_text(told.get("eventName") or attributes.get("event.name")),
        start_ns=time_ns,
        end_ns=time_ns,
        attributes=attributes,
        resource=line.resource,
        scope=line.scope.name,
        log=True,
        body=told.get("body"),
    )


def _happened(told: Mapping[str, Any]) -> Happened:
    time_ns = nanoseconds(told, "timeUnixNano")
    return Happened(name=_text(told.get("name")), time_ns=time_ns, attributes=_object(told.get("attributes")))


def identity(told: Mapping[str, Any], name: str, form: re.Pattern[str] = _TRACE) -> str:
    """An id in lower case. Raises `InvalidTrace` for one that is missing, all zero or of another form."""
    text = _text(told.get(name)).lower()
    if not form.fullmatch(text) or not text.strip("0"):
        digits = 32 if form is _TRACE else 16
        raise InvalidTrace(f"{name} is {text[:40]!r}; it must be {digits} hex digits, not all 0")
    return text


def _optional(told: Mapping[str, Any], name: str, form: re.Pattern[str]) -> str:
    text = _text(told.get(name)).lower()
    return identity(told, name, form) if text.strip("0") else ""


def nanoseconds(told: Mapping[str, Any], name: str) -> int:
    """A time, exact, from a number or a text of digits; 0 when it is absent. Raises `Undecodable`."""
    value = told.get(name)
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        value = int(value)
    if value is None or value == "":
        return 0
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < _MOST_NS:
        raise Undecodable(f"{name} is {str(value)[:60]}; it must be nanoseconds, as a whole number or a text of digits")
    return value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
