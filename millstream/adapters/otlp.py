"""OTLP JSON out: into a file of lines, as the OpenTelemetry file exporter writes them, or by POST to a collector.

Both keep the offsets that they have come to in a small file. The lines file is cut back to the size that it had then,
so that after a crash nothing stands in it twice.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct, field

from millstream.errors import Unavailable
from millstream.judging import Poster, Rejected

TIMEOUT_S: Final = 5.0


class Kept(Struct, frozen=True, kw_only=True):
    """How far a sink has come: the topic, the next offset of each partition, and the bytes that were written."""

    topic_id: str = ""
    offsets: dict[int, int] = field(default_factory=dict)
    size: int = 0


class Place:
    """The file that keeps it, replaced whole."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def read(self) -> Kept:
        """What was kept; nothing when there is no file or none that can be read."""
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=Kept)
        except (OSError, msgspec.MsgspecError):
            return Kept()

    def write(self, kept: Kept) -> None:
        """Keep it. Raises `Unavailable`."""
        fresh = self._file.with_suffix(".new")
        with _errors(self._file):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with fresh.open("wb") as target:
                target.write(msgspec.json.encode(kept))
                target.flush()
                os.fsync(target.fileno())
            fresh.replace(self._file)


class OtlpFile:
    """Lines appended to a file, one request each."""

    def __init__(self, file: Path, place: Path) -> None:
        """``place``: where the offsets are kept."""
        self._file, self._place = file, Place(place)
        self._kept = self._place.read()

    def offsets(self, topic_id: str) -> Mapping[int, int]:
        """The offsets kept for this topic, while the file is still there."""
        size = self._file.stat().st_size if self._file.exists() else 0
        if self._kept.topic_id != topic_id or size < self._kept.size:
            self._kept = Kept(size=size)
            return {}
        return self._kept.offsets

    def write(self, body: bytes, topic_id: str, offsets: Mapping[int, int]) -> None:
        """Append a line, then keep the offsets. Raises `Unavailable`."""
        with _errors(self._file):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with self._file.open("ab") as target:
                target.truncate(self._kept.size)  # what a crash left behind, its offsets not kept
                if body:
                    target.write(body + b"\n")
                target.flush()
                os.fsync(target.fileno())
                size = target.tell() if body else self._kept.size
        kept = Kept(topic_id=topic_id, offsets=dict(offsets), size=size)
        self._place.write(kept)
        self._kept = kept


class OtlpHttp:
    """POSTs to a collector, such as ``http://127.0.0.1:4318/v1/logs``."""

    def __init__(self, poster: Poster, url: str, headers: Mapping[str, str], place: Path) -> None:
        """``place``: where the offsets are kept."""
        self._poster, self._url, self._headers, self._place = poster, url, headers, Place(place)

    def offsets(self, topic_id: str) -> Mapping[int, int]:
        """The offsets kept for this topic."""
        kept = self._place.read()
        return kept.offsets if kept.topic_id == topic_id else {}

    def write(self, body: bytes, topic_id: str, offsets: Mapping[int, int]) -> None:
        """Post, then keep the offsets. Raises `Unavailable`, also for what the collector rejects."""
        if body:
            try:
                self._poster.post(self._url, body, self._headers, TIMEOUT_S)
            except Rejected as error:
                raise Unavailable(f"[export] evaluations: {error}") from None
        self._place.write(Kept(topic_id=topic_id, offsets=dict(offsets)))


@contextlib.contextmanager
def _errors(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Unavailable(f"{file}: {error.strerror or error}; [export] evaluations writes there") from None


def headers_of(text: str) -> dict[str, str]:
    """``OTEL_EXPORTER_OTLP_HEADERS``: ``name=value,name=value``."""
    pairs = (part.partition("=") for part in text.split(",") if "=" in part)
    return {name.strip(): value.strip() for name, _, value in pairs}
