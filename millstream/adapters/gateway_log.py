"""The log behind a gateway: events of the SDK go to ``POST /v1/events`` of `millstream serve gateway`.

Of the standard library alone, so that an agent needs nothing but the base install. One connection, kept open; no
redirect is followed, no proxy is used.
"""

from __future__ import annotations

import gzip
import http.client
import json
import logging
import ssl
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from millstream.errors import SettingsError, Unavailable
from millstream.ports import Message

logger = logging.getLogger("millstream.capture")

_TIMEOUT_S: Final = 30.0
_MOST_ANSWER: Final = 1_000_000
_ZIPPED_FROM: Final = 4096
_REFUSED: Final = frozenset({400, 413, 415, 422})
"""What will never be taken: trying again would hold up everything behind it."""


class GatewayLog:
    """Appends by asking a gateway. Not thread-safe: the SDK's sender is one thread. Raises `SettingsError` for a bad
    URL.
    """

    def __init__(self, url: str, token: str = "", *, timeout_s: float = _TIMEOUT_S) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query:
            raise SettingsError(f"[capture] gateway {url!r}: give the URL of a gateway, like http://127.0.0.1:4318")
        self._url, self._timeout_s = parts, timeout_s
        self._headers = {"Content-Type": "application/x-ndjson"}
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        self._connection: http.client.HTTPConnection | None = None
        self.rejected = 0

    def partitions(self, topic: str) -> int:
        """The gateway finds the partitions itself."""
        del topic
        return 1

    def append(self, topic: str, messages: Sequence[Message], partition: int = 0) -> int:
        """Send records of events. Raises `Unavailable` when it is worth another try; what will never be taken is
        counted in ``rejected`` and logged.
        """
        del topic, partition
        for message in messages:
            self._post(message.value or b"")
        return 0

    def close(self) -> None:
        """Hang up."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _post(self, body: bytes) -> None:
        headers, count = self._headers, body.count(b"\n")
        if len(body) > _ZIPPED_FROM:
            headers, body = {**headers, "Content-Encoding": "gzip"}, gzip.compress(body, 1)
        status, answer = self._asked(body, headers)
        if status in (200, *_REFUSED):
            self._taken(status, answer, count)
        else:
            raise Unavailable(f"the gateway {self._url.netloc} answered {status}")

    def _asked(self, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        """Status and body of the answer. A connection that had gone stale is opened anew, once."""
        stale = self._connection is not None
        try:
            connection = self._opened()
            connection.request("POST", f"{self._url.path.rstrip('/')}/v1/events", body, headers)
            response = connection.getresponse()
            return response.status, response.read(_MOST_ANSWER)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            if stale and not isinstance(error, TimeoutError):
                return self._asked(body, headers)
            raise Unavailable(f"the gateway {self._url.netloc}: {type(error).__name__}: {error}") from None

    def _opened(self) -> http.client.HTTPConnection:
        if self._connection is None:
            host, port = self._url.hostname or "", self._url.port
            if self._url.scheme == "https":
                context = ssl.create_default_context()
                self._connection = http.client.HTTPSConnection(host, port, timeout=self._timeout_s, context=context)
            else:
                self._connection = http.client.HTTPConnection(host, port, timeout=self._timeout_s)
        return self._connection

    def _taken(self, status: int, answer: bytes, count: int) -> None:
        try:
            told = json.loads(answer)
            rejected = int(told["rejected"])
        except (ValueError, KeyError, TypeError):
            told, rejected = {}, 0 if status == 200 else count
        if rejected:
            self.rejected += rejected
            why = told.get("why") or f"status {status}"
            logger.error("the gateway %s rejected %d events for good: %s", self._url.netloc, rejected, why)
