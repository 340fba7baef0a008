"""Graders of the kind ``endpoint``: POST ``{sample, item, trace_id}`` to a URL, answer ``{"score": number}``.

A grader's JSON may come from anywhere, so only URLs that begin as the settings allow are asked.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Final
from urllib.parse import SplitResult, urlsplit

from millstream.errors import SettingsError
from millstream.graders.hosted.definitions import Endpoint, Single
from millstream.graders.hosted.faults import HostedFault
from millstream.graders.hosted.means import Answered
from millstream.graders.hosted.templates import Values
from millstream.judging import Busy, Poster, Rejected

ATTEMPTS: Final = 2
"""How often an endpoint that is away is asked."""


class Endpoints:
    """Asks URLs that begin like one of ``allowed``. Raises `SettingsError` for one that is no URL."""

    def __init__(self, poster: Poster, allowed: Sequence[str], timeout_s: float) -> None:
        self._poster, self._timeout_s = poster, timeout_s
        self._allowed = [_url(text) for text in allowed]

    def __call__(self, definition: Single, values: Values) -> Answered:
        """The score. Raises `HostedFault`."""
        assert isinstance(definition, Endpoint)
        if not self._may(definition.url):
            host = urlsplit(definition.url).hostname
            raise HostedFault(
                f"grader {definition.name!r} may not ask {host}: [hosted] endpoints does not name its URL"
            )
        try:
            body = json.dumps({name: values[name] for name in ("sample", "item", "trace_id")}, allow_nan=False).encode()
        except ValueError as error:
            raise HostedFault(f"item or sample can't be sent: {error}") from None
        return Answered(score=_score(self._asked(definition, body)))

    def _may(self, url: str) -> bool:
        asked = urlsplit(url)
        return ".." not in asked.path and any(_begins(asked, allowed) for allowed in self._allowed)

    def _asked(self, definition: Endpoint, body: bytes) -> bytes:
        for left in range(ATTEMPTS - 1, -1, -1):
            try:
                return self._poster.post(definition.url, body, definition.headers, self._timeout_s)
            except Busy as error:
                if not left or error.slow:
                    raise HostedFault(str(error), kind="timeout" if error.slow else "infrastructure") from None
            except Rejected as error:
                raise HostedFault(str(error), kind="infrastructure") from None
        raise AssertionError


def _url(text: str) -> SplitResult:
    found = urlsplit(text)
    if found.scheme not in {"http", "https"} or not found.hostname:
        raise SettingsError(f"[hosted] endpoints: {text!r} must begin with https:// or http:// and a host")
    return found


def _begins(asked: SplitResult, allowed: SplitResult) -> bool:
    """Same scheme, host and port, no user in it, and the path lies at or under the allowed one."""
    try:
        same = (asked.scheme, asked.hostname, asked.port) == (allowed.scheme, allowed.hostname, allowed.port)
    except ValueError:
        return False
    under = f"{asked.path}/".startswith(f"{allowed.path.rstrip('/')}/")
    return same and under and asked.username is None and asked.password is None


def _score(body: bytes) -> float:
    try:
        found = json.loads(body)
        value = found["score"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise HostedFault(f"the endpoint answered {body[:160]!r}, not {{score}}", kind="unparsable") from None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise HostedFault(f"the endpoint's score {str(value)[:80]} is no finite number", kind="unparsable")
    return float(value)
