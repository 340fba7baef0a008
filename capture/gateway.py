"""The gateway: telemetry over HTTP into the log. ``/v1/traces`` and ``/v1/logs`` take OTLP (protobuf and JSON),
``/v1/events`` our own events as NDJSON; each may be gzipped.

An answer of 200 means that the log has every part that was not rejected. A full house is told to come back (429), a
log that is away too (503); what is sent twice counts once, so trying again is always right.
"""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct, field

from millstream import metrics, settings
from millstream.capture import otlp
from millstream.capture.edge import Edge
from millstream.capture.importers.reading import decoded
from millstream.capture.otlp import Refused, Signal
from millstream.capture.raw import RawEdge
from millstream.capture.shared import Shared
from millstream.capture.shipping import HEADERS, Line, by_partition, messages
from millstream.codec import decode_lines
from millstream.errors import EventError, Unavailable, Undecodable
from millstream.events import Tick
from millstream.metrics import Meter
from millstream.ports import Log
from millstream.serving import Refusal, Request, Response, Route, json_response
from millstream.topics import TELEMETRY

Protobuf: TypeAlias = Callable[[bytes, Signal], dict[str, Any]]
"""Reads a request in protobuf as the document that OTLP/JSON would hold. Raises `Undecodable`."""

JSON: Final = "application/json"
PROTOBUF: Final = "application/x-protobuf"
_EVENTS: Final = ("application/x-ndjson", "application/jsonl", JSON, "text/plain", "")
_PATHS: Final[Mapping[str, Signal]] = {"/v1/traces": "spans", "/v1/logs": "logs"}
_REJECTED: Final = {"spans": "rejectedSpans", "logs": "rejectedLogRecords"}
_SHOWN: Final = 5
_MEMBERS: Final = 100
"""Of one gzip; what follows each is copied, so that a body of nothing but empty ones would take minutes."""
_TOLD_AGAIN: Final = 4
"""How many times the largest body the lines of a request may measure: each span holds its resource."""
_GRPC_CODES: Final = {400: 3, 413: 8, 415: 3, 429: 8, 503: 14}
"""The codes of google.rpc.Status that an OTLP client knows."""


class Taken(Struct, kw_only=True):
    """What became of a request: how many things the log has, and why others can become nothing."""

    accepted: int = 0
    rejected: list[str] = field(default_factory=list)

    @property
    def told(self) -> str:
        """The reasons, each once, the first few of them."""
        reasons = list(dict.fromkeys(self.rejected))
        more = f"; and {len(reasons) - _SHOWN} more reasons" if len(reasons) > _SHOWN else ""
        return "; ".join(reasons[:_SHOWN]) + more


def routes(
    log: Log,
    rules: settings.Settings,
    protobuf: Protobuf,
    shared: Shared | None = None,
    meter: Meter | None = None,
) -> tuple[Route, ...]:
    """The gateway's routes. ``meter``: what they count with."""
    gateway = Gateway(log, rules.gateway, rules.capture, protobuf, shared, meter)
    traces = tuple(Route("POST", path, gateway.counted(gateway.otlp)) for path in _PATHS)
    return (*traces, Route("POST", "/v1/events", gateway.counted(gateway.events)))


class Gateway:
    """Takes requests side by side; at most ``waiting`` at a time, the next is asked to come back."""

    def __init__(
        self,
        log: Log,
        rules: settings.GatewaySettings,
        capture: settings.Capture,
        protobuf: Protobuf,
        shared: Shared | None = None,
        meter: Meter | None = None,
    ) -> None:
        self._log, self._rules, self._capture, self._protobuf, self._meter = log, rules, capture, protobuf, meter
        self._inside = 0
        self.shared = shared or Shared()
        self.shared.tally.meter = self.shared.tally.meter or meter

    def counted(self, handler: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        """The handler, its answers counted and timed."""
        meter = self._meter
        if meter is None:
            return handler

        async def answer(request: Request) -> Response:
            began = time.perf_counter()
            response = await handler(request)
            meter.add(metrics.GATEWAY_REQUESTS, (request.path, str(response.status)))
            meter.observe(metrics.GATEWAY_SECONDS, [time.perf_counter() - began])
            return response

        return answer

    def _count(self, path: str, taken: Taken) -> None:
        for fate, number in (("accepted", taken.accepted), ("rejected", len(taken.rejected))):
            if self._meter is not None and number:
                self._meter.add(metrics.GATEWAY_ITEMS, (path, fate), number)

    async def otlp(self, request: Request) -> Response:
        """A request in OTLP; the answer is in its encoding, errors too."""
        encoding = media_type(request)
        try:
            _known(encoding, (PROTOBUF, JSON))
            signal = _PATHS[request.path]
            taken = await self._in_turn(lambda: self._spans(request, encoding, signal))
        except Refusal as refused:
            return _status(refused, encoding)
        return _partial(taken, signal, encoding)

    async def events(self, request: Request) -> Response:
        """Our own events, one a line. Answers how many the log has, and why it has not the others."""
        encoding = media_type(request)
        try:
            _known(encoding, _EVENTS)
            taken = await self._in_turn(lambda: self._lines(request))
        except Refusal as refused:
            return _retried(refused, refused.response())
        status = 400 if taken.rejected and not taken.accepted else 200
        return json_response({"accepted": taken.accepted, "rejected": len(taken.rejected), "why": taken.told}, status)

    async def _in_turn(self, work: Callable[[], Taken]) -> Taken:
        if self._inside >= self._rules.waiting:
            raise Refusal(429, f"{self._inside} requests wait for the log; come back", code="rate_limit_exceeded")
        self._inside += 1
        try:
            return await asyncio.to_thread(work)
        except Unavailable as error:
            raise Refusal(503, f"the log is away: {error}", code="unavailable") from None
        except EventError as error:
            raise Refusal(400, str(error), code=error.reason) from None
        finally:
            self._inside -= 1

    def _spans(self, request: Request, encoding: str, signal: Signal) -> Taken:
        body = unzipped(request, self._rules.max_unzipped_bytes)
        document = _document(body) if encoding == JSON else self._protobuf(body, signal)
        taken, lines, room = Taken(), list[Line](), _TOLD_AGAIN * max(self._rules.max_unzipped_bytes, len(body))
        for part in otlp.parts(document, signal, RawEdge(self._capture, self.shared)):
            if isinstance(part, Refused):
                taken.rejected.append(part.reason)
                continue
            lines.append((part.key, part.line))
            room -= len(part.line)
            if room < 0:
                raise Refusal(413, "each span repeats its resource: send fewer spans at once", code="too_large")
            if part.problem:
                taken.rejected.append(f"{part.problem} (kept as a dead letter)")
            else:
                taken.accepted += 1
        self._append(lines, otlp.headers(signal, self._capture))
        self._count(request.path, taken)
        return taken

    def _lines(self, request: Request) -> Taken:
        body = unzipped(request, self._rules.max_unzipped_bytes)
        taken, lines, edge = Taken(), list[Line](), Edge(self._capture, self.shared)
        for number, (event, _) in enumerate(decode_lines(body), 1):
            if isinstance(event, EventError):
                taken.rejected.append(f"line {number}: {event}")
            elif isinstance(event, Tick):
                taken.rejected.append(f"line {number}: a Tick is the log's own")
            else:
                lines.append((event.trajectory_id, edge.encode(event)))
        self._append(lines, HEADERS)
        taken.accepted = len(lines)
        self._count(request.path, taken)
        return taken

    def _append(self, lines: Iterable[Line], headers: Mapping[str, str]) -> None:
        """All lines into the log. Raises `Unavailable`; a part that is in already is a duplicate the next time."""
        for partition, part in by_partition(lines, self._log.partitions(TELEMETRY.name)).items():
            self._log.append(TELEMETRY.name, list(messages(part, headers)), partition)


def media_type(request: Request) -> str:
    """The content type without its parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _known(encoding: str, known: tuple[str, ...]) -> None:
    if encoding not in known:
        raise Refusal(415, f"content-type {encoding!r} is not known; send {known[0]}")


def unzipped(request: Request, limit: int) -> bytes:
    """The body as it was before gzip. Raises `Refusal` for another coding, for what is no gzip, and for a bomb."""
    coding = request.headers.get("content-encoding", "identity").strip().lower()
    if coding in ("identity", ""):
        return request.body
    if coding != "gzip":
        raise Refusal(415, f"content-encoding {coding!r} is not known; send gzip or none")
    made, rest, members = bytearray(), request.body, 0
    try:
        while rest:
            members += 1
            if members > _MEMBERS:
                raise Refusal(400, f"the gzip has more than {_MEMBERS} members; send one", code="undecodable")
            unzip = zlib.decompressobj(wbits=31)
            made += unzip.decompress(rest, limit + 1 - len(made))
            if len(made) > limit or unzip.unconsumed_tail:
                raise Refusal(413, f"the body is larger than {limit:,} bytes when it is unzipped", code="too_large")
            if not unzip.eof:
                raise Refusal(400, "the gzip ends too soon", code="undecodable")
            rest = unzip.unused_data
    except zlib.error as error:
        raise Refusal(400, f"the body is no gzip: {error}", code="undecodable") from None
    return bytes(made)


def _document(body: bytes) -> dict[str, Any]:
    document = decoded(body)[0]
    if not isinstance(document, dict):
        raise Undecodable(f"an OTLP request is a JSON object, not {type(document).__name__}")
    return document


def _partial(taken: Taken, signal: Signal, encoding: str) -> Response:
    """The response of OTLP: empty when all is well, else how many were rejected and why."""
    if encoding == JSON:
        told = {_REJECTED[signal]: str(len(taken.rejected)), "errorMessage": taken.told}
        return json_response({"partialSuccess": told} if taken.rejected else {})
    partial = _number(1, len(taken.rejected)) + _text(2, taken.told)
    return Response(body=_bytes(1, partial) if taken.rejected else b"", media_type=PROTOBUF)


def _status(refused: Refusal, encoding: str) -> Response:
    """An error as OTLP wants it: a google.rpc.Status."""
    code = _GRPC_CODES.get(refused.status, 2)
    if encoding == PROTOBUF:
        body = _number(1, code) + _text(2, str(refused))
        return _retried(refused, Response(body=body, status=refused.status, media_type=PROTOBUF))
    return _retried(refused, json_response({"code": code, "message": str(refused)}, refused.status))


def _retried(refused: Refusal, response: Response) -> Response:
    """The response; with the time to come back where that helps."""
    if refused.status not in (429, 503):
        return response
    return msgspec.structs.replace(response, headers={**response.headers, "retry-after": "1"})


def _varint(value: int) -> bytes:
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*made, value])


def _number(member: int, value: int) -> bytes:
    """A member of protobuf that is a whole number."""
    return _varint(member << 3) + _varint(value)


def _bytes(member: int, value: bytes) -> bytes:
    """A member of protobuf that is bytes, a text or a message."""
    return _varint(member << 3 | 2) + _varint(len(value)) + value


def _text(member: int, value: str) -> bytes:
    return _bytes(member, value.encode("utf-8", "replace"))
