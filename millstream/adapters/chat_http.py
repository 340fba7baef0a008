"""Asking an OpenAI-compatible chat endpoint: the one door to httpx2.

What comes back is bounded and checked; nothing is followed (no redirects) and the key is in no message.
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


class HttpChat:
    """A chat endpoint behind a base URL such as ``http://127.0.0.1:8000/v1``."""

    def __init__(self, base_url: str, key: str = "", *, connections: int = 8, where: str = "[judge] base_url") -> None:
        """``key`` goes out as a bearer token. Raises `SettingsError` for a URL that is none."""
        parts = urlsplit(base_url)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
            raise SettingsError(f"{where} = {base_url!r}: write http://HOST:PORT/v1 or https://HOST/v1")
        self._host = parts.hostname
        self._client = httpx2.Client(
            base_url=base_url.rstrip("/") + "/",
            headers={"Authorization": f"Bearer {key}"} if key else {},
            limits=httpx2.Limits(max_connections=connections, max_keepalive_connections=connections),
            trust_env=not loopback(parts.hostname),
        )

    def complete(self, ask: Ask, timeout_s: float) -> Reply:
        """One call of ``chat/completions``. Raises `Busy` or `Rejected`."""
        try:
            status, headers, body = self._post(_body(ask), timeout_s)
        except httpx2.TimeoutException:
            raise Busy(f"the judge at {self._host} did not answer within {timeout_s:g} s", slow=True) from None
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise Busy(f"the judge at {self._host} can't be reached: {type(error).__name__}: {error}") from None
        if status != httpx2.codes.OK:
            raise self._error(status, headers, body, ask)
        return _reply(body, self._host)

    def close(self) -> None:
        """Close its connections."""
        self._client.close()

    def _post(self, body: bytes, timeout_s: float) -> tuple[int, Mapping[str, str], bytes]:
        headers, ends = {"Content-Type": "application/json"}, time.monotonic() + timeout_s
        with self._client.stream(
            "POST", "chat/completions", content=body, headers=headers, timeout=timeout_s
        ) as answer:
            text = bytearray()
            for chunk in answer.iter_bytes():
                text += chunk
                if time.monotonic() > ends:
                    raise httpx2.ReadTimeout("the answer trickles")
                if len(text) > MAX_ANSWER_BYTES:
                    raise Busy(f"the judge at {self._host} sent more than {MAX_ANSWER_BYTES:,} bytes")
            return answer.status_code, dict(answer.headers), bytes(text)

    def _error(self, status: int, headers: Mapping[str, str], body: bytes, ask: Ask) -> Busy | Rejected:
        told = f"the judge at {self._host} answered {status}: {_message(body)}"
        if status in _TRY_AGAIN or status >= httpx2.codes.INTERNAL_SERVER_ERROR:
            return Busy(told, wait_s=_wait(headers))
        about = b"response_format" in body or b"json_schema" in body or b"json_object" in body
        return Rejected(told, form=about and ask.form != "none" and status in {400, 404, 422})


def _body(ask: Ask) -> bytes:
    document: dict[str, Any] = {"model": ask.model, "messages": list(ask.messages), **ask.parameters}
    if ask.form == "json_schema":
        schema = {"name": "verdict", "strict": True, "schema": ask.schema}
        document["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif ask.form == "json_object":
        document["response_format"] = {"type": "json_object"}
    return json.dumps(document, allow_nan=False).encode()


def _reply(body: bytes, host: str) -> Reply:
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
        raise Busy(f"the judge at {host} answered 200 with what is no chat completion: {_message(body)}") from None


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
