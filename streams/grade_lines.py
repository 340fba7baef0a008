"""Reading records of ``grades``: the whole record at once, or line by line when one of them is bad."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import msgspec
from msgspec import Struct

from millstream.errors import GraderError
from millstream.events import Tick
from millstream.grade import GradeGiven
from millstream.ndjson import UNREADABLE, filled
from millstream.ports import Output, Record
from millstream.rollout import GradingFinished
from millstream.streams.dead_letters import Place, dead_letter

GradeLine: TypeAlias = GradeGiven | GradingFinished | Tick

_LINES = msgspec.json.Decoder(GradeLine)
_UNUSABLE = (*UNREADABLE, GraderError)


class BufferingCounts(Struct, kw_only=True):
    """What came in. grades + finished + ticks + undecodable + empty = lines and empty records read."""

    grades: int = 0
    repeated: int = 0
    unnamed: int = 0
    finished: int = 0
    stale: int = 0
    ticks: int = 0
    undecodable: int = 0
    empty: int = 0


def read_lines(stage: str, record: Record, value: bytes, counts: BufferingCounts) -> Sequence[GradeLine | Output]:
    """What the record holds, in order; a line that can't be read is a dead letter in its place."""
    try:
        return _LINES.decode_lines(value)
    except _UNUSABLE:
        return list(_each(stage, record, value, counts))


def _each(stage: str, record: Record, value: bytes, counts: BufferingCounts) -> Iterator[GradeLine | Output]:
    for index, line in enumerate(filled(value)):
        try:
            yield _LINES.decode(line)
        except _UNUSABLE as error:
            counts.undecodable += 1
            yield dead_letter(stage, record, Place(record.offset, index), line, reason="undecodable", detail=str(error))
