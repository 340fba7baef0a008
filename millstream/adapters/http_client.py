"""Asking other servers over HTTP: the one door to httpx2.

What comes back is bounded in size and time, no redirect is followed, and no key is in a message.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2

from millstream.errors import SettingsError
from millstream.judging import Ask, Busy, Rejected, Reply
from millstream.serving import loopback

MAX_ANSWER_BYTES: Final = 4_000_000
MAX_WAIT_S: Final = 300.0
"""The longest that an endpoint may ask us to wait."""
_TRY_AGAIN: Final = frozenset({408, 409, 425, 429})


class HttpPoster:
    """Posts JSON. Safe for many threads."""

    def __init__(self, *, connections: int = 8, proxies: bool = True) -> None:
        """``proxies``: whether those of the environment are used."""
        limits = httpx2.Limits(max_connections=connections, max_keepalive_connections=connections)
        self._client = httpx2.Client(limits=limits, trust_env=proxies)

    def post(self, url: str, body: bytes, headers: Mapping[str, str], timeout_s: float) -> bytes:
        """The body of the 200 that answers. Raises `Busy` when it is worth another try, else `Rejected`."""
        host = urlsplit(url).hostname
        try:
            status, told, text = self._posted(url, body, headers, timeout_s)
        except httpx2.TimeoutException:
            raise Busy(f"{host} did not answer within {timeout_s:g} s", slow=True) from None
        except (httpx2.HTTPError, httpx2.InvalidURL, UnicodeError) as error:
            raise Busy(f"{host} can't be reached: {type(error).__name__}: {error}") from None
        if status == httpx2.codes.OK:
            return text
        words = f"{host} answered {status}: {_message(text)}"
        if status in _TRY_AGAIN or status >= httpx2.codes.INTERNAL_SERVER_ERROR:
            raise Busy(words, wait_s=_wait(told))
        raise Rejected(words, status=status, body=text[:10_000])

    def close(self) -> None:
        """Close its connections."""
        self._client.close()

    def _posted(
        self, url: str, body: bytes, headers: Mapping[str, str], timeout_s: float
    ) -> tuple[int, Mapping[str, str], bytes]:
        ends = time.monotonic() + timeout_s
        sent = {**headers, "Content-Type": "application/json"}
        with self._client.stream("POST", url, content=body, headers=sent, timeout=timeout_s) as answer:
            text = bytearray()
            for chunk in answer.iter_bytes():
                text += chunk
                if time.monotonic() > ends:
                    raise httpx2.ReadTimeout("the answer trickles")
                if len(text) > MAX_ANSWER_BYTES:
                    raise httpx2.ReadError(f"more than {MAX_ANSWER_BYTES:,} bytes")
            return answer.status_code, dict(answer.headers), bytes(text)


class HttpChat:
    """A chat endpoint behind a base URL such as ``http://127.0.0.1:8000/v1``. Safe for many threads."""

    def __init__(self, base_url: str, key: str = "", *, connections: int = 8, where: str = "[judge] base_url") -> None:
        """``key`` goes out as a bearer token. Raises `SettingsError` for a URL that is none."""
        parts = urlsplit(base_url)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
            raise SettingsError(f"{where} = {base_url!r}: write http://HOST:PORT/v1 or https://HOST/v1")
        if not key.isascii() or not key.isprintable():
            raise SettingsError(f"{where}: the key for it holds what no header may hold; copy it again")
        self._url = f"{base_url.rstrip('/')}/chat/completions"
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._poster = HttpPoster(connections=connections, proxies=not loopback(parts.hostname))

    def complete(self, ask: Ask, timeout_s: float) -> Reply:
        """One call of ``chat/completions``. Raises `Busy` or `Rejected`."""
        try:
            return _reply(self._poster.post(self._url, _body(ask), self._headers, timeout_s))
        except Rejected as error:
            about = any(word in error.body for word in (b"response_format", b"json_schema", b"json_object"))
            if about and ask.form != "none" and error.status in {400, 404, 422}:
                raise Rejected(str(error), status=error.status, form=True) from None
            raise

    def close(self) -> None:
        """Close its connections."""
        self._poster.close()


def _body(ask: Ask) -> bytes:
    document: dict[str, Any] = {"model": ask.model, "messages": list(ask.messages), **ask.parameters}
    if ask.form == "json_schema":
        schema = {"name": "verdict", "strict": True, "schema": ask.schema}
        document["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif ask.form == "json_object":
        document["response_format"] = {"type": "json_object"}
    return json.dumps(document, allow_nan=False).encode()


def _reply(body: bytes) -> Reply:
    """Raises `Busy` for a 200 that holds no answer: a proxy's page, a cut body."""
    try:
        document = json.loads(body)
        choice = document["choices"][0]
        message = choice["message"]
        text, usage = message.get("content"), document.get("usage") or {}
        return Reply(
            text=text if isinstance(text, str) else "",
            model=str(document.get("model") or ""),
            finish=str(choice.get("finish_reason") or ""),
            refusal=str(message.get("refusal") or ""),
            input_tokens=_count(usage.get("prompt_tokens")),
            output_tokens=_count(usage.get("completion_tokens")),
        )
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        raise Busy(f"it answered 200 with what is no chat completion: {_message(body)}") from None


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else -1


def _message(body: bytes) -> str:
    """The words of an error, short: what an endpoint sends is shown, never parsed for a score."""
    try:
        error = json.loads(body)["error"]
        told = error.get("message", "") if isinstance(error, dict) else error
    except (ValueError, KeyError, TypeError, RecursionError):
        told = body.decode("utf-8", "replace")
    return " ".join(str(told).split())[:300] or "no message"


def _wait(headers: Mapping[str, str]) -> float:
    """How long the endpoint asks to wait, in seconds; 0 when it does not say. A date counts from its own clock."""
    text = headers.get("retry-after", "")
    try:
        seconds = float(text)
    except ValueError:
        try:
            then, now = parsedate_to_datetime(text), parsedate_to_datetime(headers.get("date", ""))
            seconds = (then - now).total_seconds()
        except (ValueError, TypeError):
            return 0.0
    return min(max(seconds, 0.0), MAX_WAIT_S) if seconds == seconds else 0.0  # noqa: PLR0124 — NaN
