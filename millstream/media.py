"""Images, sound and files in what agents say: as parts that frameworks write, and as references that events hold.

A reference is ``[media: image/png, 48213 bytes, sha256 9f86…]``. What holds the bytes themselves is a ``data:`` URI
(RFC 2397) until the edge puts the reference in its place (`millstream.capture.media`).
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import Struct

_REFERENCE = re.compile(r"\[media: ([\w.+-]+/[\w.+*-]+), (\d{1,15}) bytes, sha256 ([0-9a-f]{64})\]")
TYPES: Final = ("media_type", "mime_type", "mimeType", "mediaType", "mimetype", "mime")
"""Members that tell the type of what stands beside them."""
PAYLOADS: Final = ("data", "content", "base64", "image", "audio", "file_data", "bytes", "blob")
"""Members that hold it, in base64."""
_LINKS: Final = ("url", "uri", "file_uri", "fileUri", "file_url", "file_id", "fileId", "image_url")
_INSIDE: Final = ("image_url", "input_audio", "source", "inline_data", "inlineData", "file_data", "fileData", "file")
_KINDS: Final = {
    "wav": "audio/wav",
    "mp3": "audio/mpeg",
    "flac": "audio/flac",
    "ogg": "audio/ogg",
    "opus": "audio/opus",
}
UNKNOWN: Final = "application/octet-stream"


class Media(Struct, frozen=True):
    """What a reference tells. The bytes lie under their SHA-256 in the blob directory, where one is set."""

    media_type: str
    size: int
    sha256: str

    def __str__(self) -> str:
        return f"[media: {self.media_type}, {self.size} bytes, sha256 {self.sha256}]"


def references(text: str) -> Iterator[Media]:
    """The references in a text, in order."""
    if "[media: " in text:
        for found in _REFERENCE.finditer(text):
            yield Media(found[1], int(found[2]), found[3])


def text_of_part(part: Mapping[str, Any]) -> str:
    """The text that stands for a part that is no text: its reference, a ``data:`` URI, a link, else ``[its type]``."""
    kind = str(part.get("type", next((name for name in _INSIDE if name in part), "part")))
    held = _held(part)
    if not held:
        return f"[{kind}]"
    return held if held.startswith(("data:", "[media: ")) else f"[{kind}: {held}]"


def _held(part: Mapping[str, Any]) -> str:
    """The bytes or the place of what a part holds, as a text; '' when it tells neither."""
    for name in _LINKS:
        if isinstance(part.get(name), str) and part[name]:
            return str(part[name])
    for name in PAYLOADS:
        payload = part.get(name)
        if isinstance(payload, bytes | bytearray) and payload:
            payload = base64.b64encode(payload).decode()
        if isinstance(payload, str) and payload:
            return _as_uri(payload, declared(part))
    inside = next((part[name] for name in _INSIDE if isinstance(part.get(name), Mapping)), None)
    return _held(inside) if inside is not None else ""


def _as_uri(payload: str, media_type: str) -> str:
    if payload.startswith(("data:", "[media: ", "http:", "https:", "attachment:", "file:")):
        return payload
    return f"data:{media_type};base64,{payload}"


def declared(part: Mapping[str, Any]) -> str:
    """The media type that a part tells, `UNKNOWN` when it tells none."""
    for name in TYPES:
        if isinstance(part.get(name), str) and "/" in part[name]:
            return str(part[name])
    return _KINDS.get(str(part.get("format", "")), UNKNOWN)
