"""Dead letters: what a stage could not use, with where it came from, why, and a bounded original."""

from __future__ import annotations

import base64
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

import millstream
from millstream.ports import Message, Output, Record
from millstream.topics import DEAD_LETTERS

MAX_ORIGINAL_BYTES = 65_536
REPLAY = "replay"
"""The header of a record of telemetry that was a dead letter: its `Origin`."""
UNJOINED = "unjoined"
"""The reason of a letter of feedback that names a response, or nothing, and no run (`millstream.streams.joining`)."""

Encoding: TypeAlias = Literal["utf-8", "base64"]


class Origin(Struct, frozen=True):
    """Where an event lay before it was replayed; written ``topic id/partition/offset/index``."""

    topic_id: str
    partition: int
    offset: int
    index: int

    def __str__(self) -> str:
        return f"{self.topic_id}/{self.partition}/{self.offset}/{self.index}"

    @classmethod
    def read(cls, text: str) -> Origin:
        """Back from a header. What is no origin is one of nowhere."""
        topic_id, *numbers = text.rsplit("/", 3)
        try:
            return cls(topic_id, *map(int, numbers))
        except (TypeError, ValueError):
            return cls("", -1, -1, -1)


class DeadLetter(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag=True):
    """One unusable or late thing. ``topic``, ``topic_id``, ``partition``, ``offset`` and ``index`` (the
    line within the record, −1 for a whole record) say where it lies; ``reason`` is a short word to
    group by (``undecodable``, ``late:after_end`` …), ``detail`` a sentence for people. ``original`` is
    cut to `MAX_ORIGINAL_BYTES` of ``size``. ``replay_of``: the `Origin` of what was replayed in vain.
    """

    stage: str
    topic: str
    partition: int
    offset: int
    index: int
    reason: str
    topic_id: str = ""
    detail: str = ""
    trajectory_id: str = ""
    log_ms: int = 0
    code_version: str = ""
    size: int = 0
    encoding: Encoding = "utf-8"
    original: str = ""
    replay_of: str = ""

    @property
    def origin(self) -> Origin:
        """Where the original lies."""
        return Origin(self.topic_id, self.partition, self.offset, self.index)


class Place(Struct, frozen=True, gc=False):
    """Where in a record's partition something lies."""

    offset: int
    index: int


def original(raw: bytes) -> tuple[str, Encoding]:
    """The bounded text of some bytes: as it is when it is UTF-8, else base64."""
    kept = raw[:MAX_ORIGINAL_BYTES]
    try:
        raw.decode()
    except UnicodeDecodeError:
        return base64.b64encode(kept).decode(), "base64"
    return kept.decode(errors="ignore"), "utf-8"


def whole(letter: DeadLetter) -> bytes | None:
    """The original's bytes; None when it was cut, or is no base64."""
    try:
        kept = base64.b64decode(letter.original) if letter.encoding == "base64" else letter.original.encode()
    except ValueError:
        return None
    return kept if len(kept) == letter.size else None


def dead_letter(
    stage: str,
    record: Record,
    place: Place,
    raw: bytes,
    *,
    reason: str,
    detail: str,
    trajectory_id: str = "",
    topic_id: str = "",
) -> Output:
    """The output that keeps ``raw``, found at ``place`` of the record's partition. ``record`` is the
    one being fed: it gives topic, partition and log time.
    """
    text, encoding = original(raw)
    letter = DeadLetter(
        stage=stage,
        topic=record.topic,
        topic_id=topic_id,
        partition=record.partition,
        offset=place.offset,
        index=place.index,
        reason=reason,
        detail=detail,
        trajectory_id=trajectory_id,
        log_ms=record.log_ms,
        code_version=millstream.__version__,
        size=len(raw),
        encoding=encoding,
        original=text,
        replay_of=record.headers.get(REPLAY, "") if record.offset == place.offset else "",
    )
    return Output(DEAD_LETTERS.name, trajectory_id or record.key, msgspec.json.encode(letter), {"kind": "dead_letter"})


def unwritable(topic: str, partition: int, message: Message, detail: str) -> Output:
    """The dead letter of an output that its topic does not take. It has no outbox number: it is told out of
    turn, and may be told twice.
    """
    text, encoding = original(message.value or b"")
    letter = DeadLetter(
        stage=message.headers.get("stage", ""),
        topic=topic,
        partition=partition,
        offset=-1,
        index=-1,
        reason="too_large",
        detail=detail,
        trajectory_id=message.key,
        code_version=millstream.__version__,
        size=len(message.value or b""),
        encoding=encoding,
        original=text,
    )
    return Output(DEAD_LETTERS.name, message.key, msgspec.json.encode(letter), {"kind": "dead_letter"})
