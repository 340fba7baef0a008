"""Serving routes over HTTP: the one door to starlette and uvicorn.

At the door, before any handler: the Host header (against DNS rebinding), the Origin (against pages of others),
the token, the size of the body and the time it takes to come. A handler's exception is a 500 without its words.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import inspect
import logging
import os
import signal
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

import anyio
import anyio.to_thread
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.requests import Request as StarletteRequest
from starlette.responses import Response as StarletteResponse
from starlette.responses import StreamingResponse
from starlette.routing import Route as StarletteRoute
from uvicorn.protocols.http.h11_impl import H11Protocol

from millstream.errors import Unavailable
from millstream.serving import AUTHORIZATION, Door, Refusal, Request, Response, Route, json_response, refusal

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

HEALTH: Final = "/health"
MAX_HEADER_BYTES: Final = 65_536
"""Of all headers of a request together."""
_KEEP_S: Final = 30
"""A connection without a request is kept longer than clients keep theirs (5 s): none is closed under a call."""
_log = logging.getLogger("millstream.serve")


class Rest(Protocol):
    """An ASGI application beside the routes, which bounds the bodies that it takes itself."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""

    async def aclose(self) -> None:
        """Let go of what it holds; nothing more comes."""


class Server:
    """Routes behind a door. The socket is bound when it is made, so that the port is known before it runs."""

    def __init__(self, routes: Sequence[Route], door: Door, rest: Rest | None = None) -> None:
        """Bind. ``rest`` answers what no route names. Raises `SettingsError` for an open door without a token,
        `Unavailable` for a port that is taken.
        """
        self.door = door.checked()
        self._socket = _bound(door.host, door.port)
        self.port: int = self._socket.getsockname()[1]
        config = uvicorn.Config(
            application(routes, self.door, rest),
            http=_impatient(door.rules.body_timeout_s),
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=rest is None,
            timeout_keep_alive=_KEEP_S,
            h11_max_incomplete_event_size=MAX_HEADER_BYTES,
            lifespan="off" if rest is None else "on",
            limit_concurrency=door.rules.max_connections,
            timeout_graceful_shutdown=door.rules.stop_timeout_s,
        )
        self._server = uvicorn.Server(config)

    @property
    def url(self) -> str:
        """Where it is reached from this machine."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.door.host, self.door.host)  # noqa: S104 — a label
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    def run(self) -> None:
        """Serve until SIGTERM, SIGINT or `stop`; requests under way are answered first."""
        with _quiet_signals():
            self._server.run(sockets=[self._socket])
        self._socket.close()

    def stop(self) -> None:
        """End `run`, from another thread."""
        self._server.should_exit = True

    def __enter__(self) -> Self:
        """Serve in a thread, until the block is left."""
        self._thread = threading.Thread(target=self.run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._thread.join()


def _impatient(head_timeout_s: float) -> type[H11Protocol]:
    """The protocol of uvicorn that does not wait for ever for the head of a request."""

    class Impatient(H11Protocol):
        _due: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._due = self.loop.call_later(head_timeout_s, transport.close)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            waits = self.cycle is None or self.cycle.response_complete
            if not waits:
                self._forget()
            elif self._due is None and not self.transport.is_closing():
                self._due = self.loop.call_later(head_timeout_s, self.transport.close)

        def connection_lost(self, exc: Exception | None) -> None:
            self._forget()
            super().connection_lost(exc)

        def _forget(self) -> None:
            if self._due is not None:
                self._due.cancel()
                self._due = None

    return Impatient


def _bound(host: str, port: int) -> socket.socket:
    with contextlib.ExitStack() as undo:
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            found = undo.enter_context(socket.socket(family, kind, protocol))
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            found.bind(address)
            found.listen(128)  # from here on a connection waits rather than fails
        except OSError as error:
            told = error.strerror or error
            raise Unavailable(f"can't listen on {host}:{port}: {told}; choose another --port") from None
        undo.pop_all()
    return found


@contextlib.contextmanager
def _quiet_signals() -> Iterator[None]:
    """Uvicorn raises the signal that ended it once more when it is done: here that is a clean end."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {name: signal.signal(name, lambda *_: None) for name in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)


def application(routes: Sequence[Route], door: Door, rest: Rest | None = None) -> ASGIApp:
    """The routes, and ``/health``, behind the door's checks."""
    threads = anyio.CapacityLimiter(door.rules.threads)
    health = Route("GET", HEALTH, lambda _: json_response({"status": "ok"}))
    app = Starlette(
        routes=[
            StarletteRoute(route.path, _endpoint(route, door, threads), methods=[route.method])
            for route in (*routes, health)
        ],
        exception_handlers={HTTPException: _http_error},
    )
    return _Guard(app, door, rest, frozenset(route.path for route in (*routes, health)))


def _endpoint(
    route: Route, door: Door, threads: anyio.CapacityLimiter
) -> Callable[[StarletteRequest], Awaitable[StarletteResponse]]:
    asynchronous = inspect.iscoroutinefunction(route.handler)

    async def endpoint(asked: StarletteRequest) -> StarletteResponse:
        try:
            request = await _read(asked, door)
            if asynchronous:
                answer = route.handler(request)
            else:
                answer = await anyio.to_thread.run_sync(route.handler, request, limiter=threads)
            return _sent(await answer if inspect.isawaitable(answer) else answer)
        except Refusal as refused:
            return _sent(refused.response())
        except Exception as error:  # noqa: BLE001 — whatever a handler raises, the caller gets an answer
            debug = os.environ.get("MILLSTREAM_DEBUG") == "1"
            _log.error("a handler raised %s: %s", type(error).__name__, error, exc_info=debug)
            return _sent(refusal(500, f"internal error: {type(error).__name__}"))

    return endpoint


async def _read(asked: StarletteRequest, door: Door) -> Request:
    """The request whole. Raises `Refusal` for a body too large or too slow."""
    body = bytearray()
    try:
        async with asyncio.timeout(door.rules.body_timeout_s):
            async for chunk in asked.stream():
                body += chunk
                if len(body) > door.rules.max_body_bytes:
                    raise _too_large(door)
    except TimeoutError:
        raise Refusal(408, f"the body did not come within {door.rules.body_timeout_s:g} s", code="timeout") from None
    except ClientDisconnect:
        raise Refusal(400, "the client left", code="disconnected") from None
    return Request(
        method=asked.method,
        path=asked.url.path,
        body=bytes(body),
        headers=dict(asked.headers),
        query=dict(asked.query_params),
        values=asked.path_params,
    )


def _too_large(door: Door) -> Refusal:
    return Refusal(413, f"the body is larger than {door.rules.max_body_bytes:,} bytes", code="too_large")


def _sent(answer: Response) -> StarletteResponse:
    headers = {"x-content-type-options": "nosniff", **answer.headers}
    if isinstance(answer.body, bytes):
        return StarletteResponse(answer.body, answer.status, headers, answer.media_type)
    return StreamingResponse(answer.body, answer.status, headers, answer.media_type)


def _http_error(_: StarletteRequest, error: Exception) -> StarletteResponse:
    status = getattr(error, "status_code", 500)
    told = {404: "there is nothing at this path", 405: "this path knows another method"}
    return _sent(refusal(status, told.get(status, str(getattr(error, "detail", error)))))


class _Guard:
    """Pure ASGI, so that nothing of a body is read before the caller may come in."""

    def __init__(self, app: ASGIApp, door: Door, rest: Rest | None, own: frozenset[str]) -> None:
        self._app, self._door, self._rest, self._own = app, door, rest, own

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        if scope["type"] != "http":
            return
        rest = self._rest if scope["path"] not in self._own else None
        refused = self._refused(scope, bounded=rest is None)
        if refused is not None:
            await _sent(refused.response())(scope, receive, send)
        else:
            await (rest or self._app)(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        while (await receive())["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        if self._rest is not None:
            await self._rest.aclose()
        await send({"type": "lifespan.shutdown.complete"})

    def _refused(self, scope: Scope, *, bounded: bool) -> Refusal | None:
        headers = _headers(scope)
        host, origin = headers.get("host", ""), headers.get("origin")
        if not self._door.knows_host(host):
            return Refusal(
                421, f"this server is not {host[:80]!r}; [serve] hosts names what it answers to", code="host"
            )
        if origin is not None and not self._door.knows_origin(origin, host):
            return Refusal(403, f"pages of {origin[:80]!r} may not ask; [serve] origins allows them", code="origin")
        if scope["path"] != HEALTH and not self._shown(headers, own=bounded):
            return Refusal(401, f"a token is needed: {self._door.token_form}", code="invalid_api_key")
        if sum(len(name) + len(value) for name, value in scope["headers"]) > MAX_HEADER_BYTES:
            return Refusal(431, f"the headers are larger than {MAX_HEADER_BYTES:,} bytes", code="too_large")
        length = headers.get("content-length", "0")
        if bounded and length.isdigit() and int(length) > self._door.rules.max_body_bytes:
            return _too_large(self._door)
        return None

    def _shown(self, headers: Mapping[str, str], *, own: bool) -> bool:
        """Whether the caller shows the token; compared in constant time. Where it has a header of its own, paths of
        ``own`` take it in Authorization, too: scrapers know no other.
        """
        wanted, name = self._door.token, self._door.token_header
        if not wanted:
            return True
        kind, _, bearer = headers.get(AUTHORIZATION, "").partition(" ")
        told = [bearer] if kind.lower() == "bearer" and (own or name == AUTHORIZATION) else []
        told += [headers.get(name, "")] if name != AUTHORIZATION else []
        return any(hmac.compare_digest(one.strip().encode(), wanted.encode()) for one in told)


def _headers(scope: Scope) -> dict[str, str]:
    pairs: Any = scope["headers"]
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in pairs}
