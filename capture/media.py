"""Media at the edge: bytes in base64 become references with type, size and hash, wherever they stand in an event.

Found are ``data:`` URIs in any text, and objects that hold base64 beside a media type as OpenAI (``input_audio``),
Anthropic (``source``), GenAI (``blob``), Gemini (``inline_data``), Vercel and MCP write them, also in JSON texts.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Callable
from typing import Any, Final

import msgspec

from millstream.capture.detectors import json_texts
from millstream.capture.detectors.runs import has_run
from millstream.media import PAYLOADS, TYPES, UNKNOWN, Media, declared

LEAST: Final = 256
"""Letters of base64 below which they stay: a reference would not be shorter, and short ones may be words."""
_UNPADDED: Final = 252
_URI = re.compile(
    r"data:(?P<type>[\w.+-]{1,60}/[\w.+-]{1,80})?(?:;[\w=.+-]{1,80}){0,4};base64,(?P<data>[A-Za-z0-9+/_=%-]{256,})"
)
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{252,}={0,2}")
_NEEDLES: Final = (*(name.encode() for name in TYPES), b'"format', b'"blob', b'\\"blob', b'\\"format')
_MAGIC: Final = (
    (b"\x89PNG", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"OggS", "audio/ogg"),
    (b"fLaC", "audio/flac"),
    (b"ID3", "audio/mpeg"),
    (b"\x1aE\xdf\xa3", "video/webm"),
)

Keep = Callable[[bytes], object]
"""What becomes of the bytes."""


def may_hold(encoded: bytes) -> bool:
    """Whether an encoded event may hold media: cheap, and never wrongly False."""
    if len(encoded) < LEAST:
        return False
    if b";base64," in encoded:
        return True
    return (has_run(encoded, _UNPADDED) or rb"\/" in encoded) and any(needle in encoded for needle in _NEEDLES)


class Extractor:
    """Puts references in place of media. ``keep``: what is done with the bytes of each, None: nothing."""

    def __init__(self, keep: Keep | None = None) -> None:
        self._keep = keep
        self.count = 0

    def tree(self, value: Any) -> Any:
        """A JSON value with references in place of media; texts that are JSON are looked into."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            held = _payload(value)
            return {
                name: self._held(held[name], item) if name in held else self.tree(item) for name, item in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.tree(item) for item in value]
        return value

    def text(self, text: str) -> str:
        """The text with references; the same object when it holds no media."""
        if len(text) < LEAST:
            return text
        if text.lstrip()[:1] in ("{", "["):
            held = _payloads_of(text)
            inside = json_texts.changed(text, lambda _, told: self._told(told, held))
            if inside is not None:
                return text if inside == text else inside
        return _URI.sub(self._of_uri, text) if ";base64," in text else text

    def _told(self, told: str, held: dict[str, str]) -> str:
        return self._held(held[told], told) if told in held else self.text(told)

    def _of_uri(self, found: re.Match[str]) -> str:
        return self._held(found["type"] or "text/plain", found["data"], found.group())

    def _held(self, media_type: str, payload: str, otherwise: str = "") -> str:
        """The reference of a payload; what is no base64 stays."""
        data = _bytes(payload)
        if data is None:
            return otherwise or payload
        self.count += 1
        if self._keep is not None:
            self._keep(data)
        kind = _sniffed(data) if media_type == UNKNOWN else media_type
        return str(Media(kind, len(data), hashlib.sha256(data).hexdigest()))


def _payload(part: dict[Any, Any]) -> dict[str, str]:
    """The members of an object that hold media, and the type of each."""
    tells = any(name in part for name in (*TYPES, "format")) or part.get("type") == "blob"
    if not tells:
        return {}
    found = {name: part[name] for name in PAYLOADS if isinstance(part.get(name), str)}
    return {name: declared(part) for name, text in found.items() if len(text) >= LEAST and _BASE64.fullmatch(text)}


def _payloads_of(text: str) -> dict[str, str]:
    """The same of all the objects in a text that is JSON: payload to type."""
    found: dict[str, str] = {}
    try:
        waiting = [msgspec.json.decode(text)]
    except (msgspec.MsgspecError, RecursionError, UnicodeEncodeError):
        return found
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            found.update({value[name]: kind for name, kind in _payload(value).items()})
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return found


def _bytes(payload: str) -> bytes | None:
    plain = payload.translate(str.maketrans("-_", "+/")).replace("%2B", "+").replace("%2F", "/").replace("%3D", "=")
    plain = plain.rstrip("=")
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None


def _sniffed(data: bytes) -> str:
    """The media type by the first bytes."""
    if data[:4] == b"RIFF":
        return {b"WAVE": "audio/wav", b"WEBP": "image/webp"}.get(data[8:12], UNKNOWN)
    if data[4:8] == b"ftyp":
        return "video/mp4"
    return next((kind for magic, kind in _MAGIC if data.startswith(magic)), UNKNOWN)
