"""Passing requests on to one server, byte for byte: the one door to httpcore2.

Nothing is followed, repeated or decoded. What comes from one side goes to the other at once, and as slowly as that
one takes it. Errors that are ours have the shape of the OpenAI API.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import urllib.request
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

import httpcore2

from millstream.errors import SettingsError
from millstream.forwarding import OWN_PREFIX, Ending, Exchange, Headers, Watcher
from millstream.serving import Refusal, Response, loopback

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from millstream.settings import ProxySettings

_HOP_BY_HOP: Final = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer trailers "
    b"transfer-encoding upgrade".split()
)
_NEVER_SENT: Final = _HOP_BY_HOP | {b"host", b"expect"}
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_CODINGS: Final = (b"gzip", b"deflate")
"""Codings of an answer that an exchange can be read in; a client may only ask for these when it is watched."""
_SPELLINGS: Final = 4
"""How often a path is looked at behind its escapes: one escaped ten thousand times would hold up every other call."""
_CONNECT_S: Final = 10.0
_KEEP_S: Final = 5.0
_FAULTS: Final = (
    httpcore2.TimeoutException,
    httpcore2.NetworkError,
    httpcore2.ProtocolError,
    httpcore2.ProxyError,
    OSError,
)
_LATE: Final = (504, "upstream_timeout", "did not answer in time")
_AWAY: Final = (502, "upstream_unreachable", "can't be reached, or broke off")
_log = logging.getLogger("millstream.serve")


class ClientLeft(Exception):
    """The caller closed its connection."""


class Upstream:
    """Where requests go: the scheme, host and port of a URL, and what its path puts before ``/v1``."""

    def __init__(self, url: str, environ: Mapping[str, str] | None = None) -> None:
        """``environ``: the proxies of the environment (default: the real one's). Raises `SettingsError`."""
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            port = -1
        sound = parts.scheme in {"http", "https"} and parts.hostname and port != -1 and url.isascii()
        if not sound or parts.query or parts.fragment or parts.username is not None:
            raise SettingsError(f"--upstream {_shown(url)!r}: write http://HOST:PORT/v1 or https://HOST/v1, and no key")
        assert parts.hostname is not None
        self.scheme, self.host = parts.scheme.encode(), parts.hostname.encode()
        self.port = port
        self.base = parts.path.rstrip("/").removesuffix("/v1").encode()
        self.authority = parts.netloc.encode()
        self.proxy = None if loopback(parts.hostname) else _proxy_for(parts.scheme, parts.hostname, environ)

    def url(self, target: bytes) -> httpcore2.URL:
        """The URL of a target below it."""
        return httpcore2.URL(scheme=self.scheme, host=self.host, port=self.port, target=self.base + target)


def _shown(url: str) -> str:
    """A URL for a message: without what may be a key in it."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()[:200]


def _proxy_for(scheme: str, host: str, environ: Mapping[str, str] | None) -> str | None:
    if environ is not None:
        return environ.get(f"{scheme}_proxy")
    return None if urllib.request.proxy_bypass(host) else urllib.request.getproxies().get(scheme)


class Forwarder:
    """An ASGI application that passes every request on to one upstream."""

    def __init__(self, upstream: Upstream, rules: ProxySettings, watcher: Watcher, body_timeout_s: float) -> None:
        """``body_timeout_s``: how long the next piece of a request's body may take."""
        self._upstream, self._rules, self._watcher, self._body_timeout_s = upstream, rules, watcher, body_timeout_s
        self._timeouts = {"connect": _CONNECT_S, "pool": _CONNECT_S, "write": body_timeout_s, "read": rules.timeout_s}
        self._pool = httpcore2.AsyncConnectionPool(
            proxy=httpcore2.Proxy(upstream.proxy) if upstream.proxy else None,
            ssl_context=httpcore2.default_ssl_context() if upstream.scheme == b"https" else None,
            max_connections=None,
            max_keepalive_connections=64,
            keepalive_expiry=_KEEP_S,
        )

    async def aclose(self) -> None:
        """Close the connections to the upstream, and let the watcher end."""
        await self._pool.aclose()
        await asyncio.to_thread(self._watcher.close)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request on and its answer back."""
        passing = _Passing(receive, send, self._watcher.begin(scope["method"], scope["path"], scope["headers"]))
        ending: Ending = "unanswered"
        try:
            request = await self._request(scope, passing)
            ending = await self._passed(request, passing)
        except ClientLeft:
            ending = "left"
        except Refusal as refused:
            if passing.started:
                ending = "broken"
            else:
                await passing.answer(refused.response())
        finally:
            passing.over(ending)

    async def _passed(self, request: httpcore2.Request, passing: _Passing) -> Ending:
        async with passing.watched():
            try:
                answer = await self._pool.handle_async_request(request)
                try:
                    await passing.back(answer)
                finally:
                    await answer.aclose()
            except _FAULTS as error:
                return await self._failed(error, passing)
        return "whole"

    async def _failed(self, error: Exception, passing: _Passing) -> Ending:
        """The upstream is away, or breaks off; what of its answer has gone out can't be taken back."""
        host, what = self._upstream.authority.decode(), type(error).__name__
        _log.warning("the upstream %s: %s", host, what)
        if passing.started:
            return "broken"
        late = isinstance(error, httpcore2.ReadTimeout)
        words = (
            f"the upstream {host} did not answer in time" if late else f"the upstream {host} can't be reached: {what}"
        )
        code = "upstream_timeout" if late else "upstream_unreachable"
        await passing.answer(Refusal(504 if late else 502, words, code=code).response())
        return "unanswered"

    async def _request(self, scope: Scope, passing: _Passing) -> httpcore2.Request:
        """The request as the upstream gets it. Raises `Refusal`."""
        method = scope["method"]
        if method not in _METHODS:
            raise Refusal(405, f"{method} is not passed on")
        target = _target(scope["raw_path"], scope["path"])
        query = scope["query_string"]
        headers = _outgoing(scope["headers"], self._upstream.authority, watched=passing.exchange is not None)
        sized = any(name == b"content-length" for name, _ in headers)
        chunked = not sized and any(name == b"transfer-encoding" for name, _ in scope["headers"])
        if chunked:
            headers.append((b"transfer-encoding", b"chunked"))
        content: bytes | AsyncIterator[bytes] | None = None
        if sized or chunked:
            content = await passing.content(self._rules.max_body_bytes, self._body_timeout_s)
        else:
            passing.whole.set()
        return httpcore2.Request(
            method=method,
            url=self._upstream.url(target + b"?" + query if query else target),
            headers=headers,
            content=content,
            extensions={"timeout": self._timeouts},
        )


class _Passing:
    """One request on its way: its pieces in, its answer out, and who looks on."""

    def __init__(self, receive: Receive, send: Send, exchange: Exchange | None) -> None:
        self.exchange = exchange
        self.started = False
        self._receive, self._send = receive, send
        self._left = self._complete = False
        self.whole = asyncio.Event()

    async def content(self, most: int, timeout_s: float) -> bytes | AsyncIterator[bytes]:
        """The body of the request: whole when it came in one piece, else the pieces as they come."""
        piece, more = await self._piece(timeout_s)
        if not more:
            self.whole.set()
            return piece
        return self._pieces(piece, most, timeout_s)

    async def _pieces(self, piece: bytes, most: int, timeout_s: float) -> AsyncIterator[bytes]:
        size, more = len(piece), True
        while True:
            if size > most:
                raise Refusal(413, f"the body is larger than {most:,} bytes", code="too_large")
            if piece:
                yield piece
            if not more:
                self.whole.set()
                return
            piece, more = await self._piece(timeout_s)
            size += len(piece)

    async def _piece(self, timeout_s: float) -> tuple[bytes, bool]:
        try:
            async with asyncio.timeout(timeout_s):
                told = await self._receive()
        except TimeoutError:
            raise Refusal(
                408, f"the next piece of the body did not come within {timeout_s:g} s", code="timeout"
            ) from None
        if told["type"] == "http.disconnect":
            raise ClientLeft
        piece = told.get("body", b"")
        if self.exchange is not None and piece:
            self.exchange.sent(piece)
        return piece, told.get("more_body", False)

    @contextlib.asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Until the block ends: when the client leaves, what is under way is given up (`ClientLeft`)."""
        task = asyncio.current_task()
        assert task is not None
        watch = asyncio.create_task(self._watch(task))
        try:
            yield
        except asyncio.CancelledError:
            if not self._left:
                raise
            task.uncancel()
            raise ClientLeft from None
        finally:
            watch.cancel()

    async def _watch(self, passing: asyncio.Task[object]) -> None:
        await self.whole.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if not self._complete:
            self._left = True
            passing.cancel()

    async def back(self, answer: httpcore2.Response) -> None:
        """The answer, to the client."""
        headers = _returning(answer.headers)
        if self.exchange is not None:
            self.exchange.answered(answer.status, headers)
        self.started = True
        await self._send({"type": "http.response.start", "status": answer.status, "headers": headers})
        async for piece in answer.aiter_stream():
            if self.exchange is not None:
                self.exchange.came(piece)
            await self._send({"type": "http.response.body", "body": piece, "more_body": True})
        self._complete = True
        await self._send({"type": "http.response.body", "body": b""})

    async def answer(self, response: Response) -> None:
        """An answer of our own."""
        assert isinstance(response.body, bytes)
        headers = [(b"content-type", response.media_type.encode()), (b"content-length", b"%d" % len(response.body))]
        if not self.whole.is_set():
            headers.append((b"connection", b"close"))
        self.started = self._complete = True
        await self._send({"type": "http.response.start", "status": response.status, "headers": headers})
        await self._send({"type": "http.response.body", "body": response.body})

    def over(self, ending: Ending) -> None:
        """Tell who looked on."""
        if self.exchange is not None:
            self.exchange.over(ending)


def _target(raw: bytes, path: str) -> bytes:
    """The path as it came. Raises `Refusal` for one that leaves the place of the upstream's URL: another server's
    (an absolute URI), or with a step up in whatever spelling.
    """
    if not raw.startswith(b"/") or raw.startswith(b"//"):
        raise Refusal(400, "a path begins with one slash")
    for _ in range(_SPELLINGS):
        if (plain := unquote(path)) == path:
            break
        path = plain
    else:
        raise Refusal(400, f"a path is escaped {_SPELLINGS - 1} times at most")
    if not {".", ".."}.isdisjoint(path.replace("\\", "/").split("/")):
        raise Refusal(400, "a path has no steps up")
    return raw


def _outgoing(headers: Headers, authority: bytes, *, watched: bool) -> list[tuple[bytes, bytes]]:
    """The headers for the upstream: no hop's own, none of ours."""
    dropped = _NEVER_SENT | _named(headers)
    kept = [(n, v) for n, v in headers if n not in dropped and not n.startswith(OWN_PREFIX)]
    if watched:
        kept = [(name, _readable(value) if name == b"accept-encoding" else value) for name, value in kept]
    return [(b"host", authority), *kept]


def _returning(headers: Headers) -> list[tuple[bytes, bytes]]:
    """The headers for the client."""
    dropped = _HOP_BY_HOP | _named(headers)
    return [(name.lower(), value) for name, value in headers if name.lower() not in dropped]


def _named(headers: Headers) -> set[bytes]:
    """The headers that Connection says are of this hop only. What frames or addresses the message is never among
    them, whoever says so.
    """
    told = b",".join(value for name, value in headers if name.lower() == b"connection")
    return {name.strip().lower() for name in told.split(b",")} - {b"", b"content-length", b"authorization"}


def _readable(accepted: bytes) -> bytes:
    """Of the codings that a client takes those that can be read on the way."""
    names = {part.partition(b";")[0].strip().lower() for part in accepted.split(b",")}
    return b", ".join(name for name in _CODINGS if name in names) or b"identity"
