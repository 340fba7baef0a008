"""The edge for what is stored as its producer told it: a span as a line of JSON, bounded and without secrets.

Frameworks write JSON into texts. A text that is a JSON object or list is changed inside and written again, so that
what was JSON stays JSON.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from millstream import settings
from millstream.capture.bounds import each_text
from millstream.capture.media import Extractor, may_hold
from millstream.capture.redaction import Redactor
from millstream.capture.shared import Shared
from millstream.dialects.cuts import cut, measured
from millstream.errors import TooLarge
from millstream.repair import sound

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
_SHRINKS = (8192, 1024, 256)


class RawEdge:
    """Turns spans into the bytes that may be stored. Not thread-safe."""

    def __init__(self, capture: settings.Capture, shared: Shared | None = None) -> None:
        self._shared = shared or Shared()
        self.redactor = Redactor(capture, self._shared.tally, self._shared.finders)
        self._media = Extractor(self._shared.keep)
        self._text_bytes = capture.max_text_bytes
        self._line_bytes = capture.max_event_bytes

    def line(self, thing: dict[str, Any]) -> bytes:
        """One line without its line break. Raises `TooLarge` for what no cutting makes small enough."""
        try:
            data = _encode(thing)
        except UnicodeEncodeError:
            thing = sound(thing)[0]
            data = _encode(thing)
        if may_hold(data):
            thing = self._media.tree(thing)
            data = _encode(thing)
        if self.redactor.suspects(data):
            thing = self.redactor.tree(thing)
            data = _encode(thing)
        for limit in (self._text_bytes, *_SHRINKS):
            if len(data) <= min(limit, self._line_bytes):
                return data
            thing = each_text(thing, _inside(partial(self._cut, max_bytes=limit), longer=limit))
            data = _encode(thing)
            if len(data) <= self._line_bytes:
                return data
        raise TooLarge(f"a span of {len(data):,} bytes after its texts were cut; the limit is {self._line_bytes:,}")

    def _cut(self, text: str, max_bytes: int) -> str:
        """The text cut; what was whole until now may be kept as a blob, under the hash that the mark tells."""
        short = cut(text, max_bytes)
        if short is not text and measured(text) is None:
            self._shared.keep(text.encode())
        return short


def _inside(change: Callable[[str], str], longer: int = 0) -> Callable[[str], str]:
    """``change`` for texts that reaches into those that are JSON; only into those longer than ``longer`` bytes."""

    def changed(text: str) -> str:
        if text[:1] in ("{", "[") and len(text) * 4 > longer:
            try:
                inside = _decode(text)
            except (msgspec.MsgspecError, RecursionError):
                return change(text)
            after = each_text(inside, change)
            return text if after == inside else _encode(after).decode()
        return change(text)

    return changed


def fingerprint(data: bytes) -> str:
    """A name for a line that tells no trace."""
    return f"untraced-{hashlib.blake2b(data, digest_size=16).hexdigest()}"
