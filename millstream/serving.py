"""What a room serves over HTTP, without a web framework in sight: requests in, responses out.

A room writes handlers and routes; the adapter (`millstream.adapters.http_server`) listens, and checks at its
door what every server checks alike: token, Host, Origin, size. Errors have the shape of the OpenAI API, which
clients of all our servers know: ``{"error": {"message", "type", "param", "code"}}``.
"""

from __future__ import annotations

import ipaddress
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

from msgspec import Struct, field

from millstream.errors import MillstreamError, SettingsError
from millstream.settings import ServeSettings

LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]")
"""The names under which a server on this machine is reached."""
AUTHORIZATION: Final = "authorization"
MIN_TOKEN: Final = 16
"""The fewest characters of a token: a shorter one can be guessed."""


class Request(Struct, frozen=True, kw_only=True):
    """One request, read whole. Header names are in lower case; ``values`` are those of the path's places."""

    method: str
    path: str
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, str] = field(default_factory=dict)


class Response(Struct, frozen=True, kw_only=True):
    """An answer. A ``body`` that is an async iterator is sent piece by piece, as it comes."""

    body: bytes | AsyncIterator[bytes] = b""
    status: int = 200
    media_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)


Handler: TypeAlias = Callable[[Request], Response | Awaitable[Response]]
"""A plain function runs in a thread of its own; an async one in the server's loop, and must not block it."""


class Route(Struct, frozen=True):
    """Which handler answers. A path may have places: ``/v1/jobs/{id}``."""

    method: str
    path: str
    handler: Handler


class Refusal(MillstreamError):
    """A request that is answered with an error: its status, and a word for programs."""

    def __init__(self, status: int, message: str, *, code: str = "", param: str = "") -> None:
        super().__init__(message)
        self.status, self.code, self.param = status, code, param

    def response(self) -> Response:
        """The answer in the shape of the OpenAI API."""
        return refusal(self.status, str(self), code=self.code, param=self.param)


class Door(Struct, frozen=True, kw_only=True):
    """Where a server listens and whom it lets in: a ``token`` that is not empty is asked of every request but
    ``/health``, in ``token_header``; ``rules`` are those that all servers share.
    """

    host: str = "127.0.0.1"
    port: int = 0
    token: str = ""
    token_header: str = AUTHORIZATION
    rules: ServeSettings = ServeSettings()

    @property
    def token_form(self) -> str:
        """How the token is shown."""
        return "Authorization: Bearer …" if self.token_header == AUTHORIZATION else f"{self.token_header}: …"

    def __repr__(self) -> str:
        """Without the token."""
        return f"Door(host={self.host!r}, port={self.port}, token={'***' if self.token else ''!r})"

    def checked(self) -> Door:
        """The same. Raises `SettingsError` for a host that others can reach without a token."""
        if not loopback(self.host) and not self.token:
            raise SettingsError(
                f"serving on {self.host} lets others in, so it needs a token: "
                "write one into a file and give --token-file FILE, or set MILLSTREAM_TOKEN"
            )
        return self

    def knows_host(self, header: str) -> bool:
        """Whether a Host header names this server. An address can't be rebound by a name server, so any is
        good where the server listens on all of them.
        """
        name = host_of(header)
        if name in {*LOOPBACK, *(host_of(host) for host in self.rules.hosts), host_of(self.host)}:
            return True
        return self.host in {"0.0.0.0", "::"} and _address(name)  # noqa: S104 — compared, not bound

    def knows_origin(self, origin: str, host: str) -> bool:
        """Whether a page of this origin may ask: the server's own pages, and those that the settings name."""
        return origin in self.rules.origins or origin.partition("://")[2] == host


def host_of(header: str) -> str:
    """The name in a Host header, without the port, in lower case; an IPv6 address has brackets."""
    text = header.strip().lower()
    if text.startswith("["):
        return text.partition("]")[0] + "]"
    return f"[{text}]" if text.count(":") > 1 else text.partition(":")[0]


def _address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens there."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def token_of(file: Path | None, environ: Mapping[str, str] | None = None) -> str:
    """The token that callers must show: the text of a file, else ``MILLSTREAM_TOKEN``, else none.

    Raises `SettingsError` when the file can't be read, or the token is short or not plain ASCII.
    """
    if file is None:
        token, where = (os.environ if environ is None else environ).get("MILLSTREAM_TOKEN", ""), "MILLSTREAM_TOKEN"
        if not token:
            return ""
    else:
        where = f"--token-file {file}"
        try:
            token = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(f"{where} can't be read: {getattr(error, 'strerror', None) or error}") from None
    token = token.strip()
    if len(token) < MIN_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise SettingsError(f"{where}: a token has at least {MIN_TOKEN} printable characters, without spaces")
    return token


def json_response(document: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A document as JSON."""
    body = json.dumps(document, ensure_ascii=True, allow_nan=False).encode()
    return Response(body=body, status=status, headers=dict(headers or {}))


def refusal(status: int, message: str, *, code: str = "", param: str = "") -> Response:
    """An error in the shape of the OpenAI API."""
    kind = "server_error" if status >= 500 else "invalid_request_error"
    error = {"message": message, "type": kind, "param": param or None, "code": code or None}
    return json_response({"error": error}, status)
