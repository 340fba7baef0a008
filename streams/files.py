"""The stage ``assemble`` over a file: the whole file is the log, and its time is made up.

All lines come at one moment, so no timer fires between them. At the end of the file the grace of linked
trajectories passes; with ``close_open`` every other timer does, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, TypeAlias

import msgspec

from millstream.codec import encode
from millstream.events import CLOSE_OPEN, NO_RUN, EventId, Tick
from millstream.ports import Output, Record
from millstream.settings import Assembly
from millstream.streams.assembly import Assembler
from millstream.streams.dead_letters import DeadLetter
from millstream.topics import DEAD_LETTERS, TELEMETRY

BATCH = 200
"""Lines a record."""
_END = 1 << 62
"""The offset of the end: after every line."""

Made: TypeAlias = tuple[Literal["trajectory", "dead"], bytes]


def assemble_file(lines: Iterable[bytes], settings: Assembly, *, close_open: bool = False) -> Iterator[Made]:
    """Assemble NDJSON events, given as lines (an open binary file is one): ("trajectory", its JSON) for
    each sealed revision, ("dead", one line for people) for each line that could not be used. Feedback is
    no part of a trajectory and is left out.
    """
    assembler = Assembler(settings)
    for first, value in _batches(lines):
        yield from _made(assembler.feed(_record(first, value, 0)))
    grace_ms = round(settings.grace_s * 1000)
    yield from _made(assembler.feed(_record(_END, _tick(), grace_ms)))
    if close_open:
        yield from _made(assembler.feed(_record(_END + 1, _tick(CLOSE_OPEN), grace_ms)))


def _batches(lines: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """(number of the first line, counted from 0; the lines), cut at blank lines so that an index within
    a batch tells the line.
    """
    batch: list[bytes] = []
    number = -1
    for number, line in enumerate(lines):
        blank = line.isspace() or not line
        if batch and (blank or len(batch) == BATCH):
            yield number - len(batch), b"".join(batch)
            batch = []
        if not blank:
            batch.append(line if line.endswith(b"\n") else line + b"\n")
    if batch:
        yield number + 1 - len(batch), b"".join(batch)


def _record(offset: int, value: bytes, log_ms: int) -> Record:
    return Record(TELEMETRY.name, 0, offset, log_ms, "", value, {"import": "1"})


def _tick(*flags: str) -> bytes:
    return encode(Tick(id=EventId("end"), trajectory_id=NO_RUN, flags=flags))


def _made(outputs: Iterable[Output]) -> Iterator[Made]:
    for output in outputs:
        if output.topic == DEAD_LETTERS.name:
            letter = msgspec.json.decode(output.value, type=DeadLetter)
            yield "dead", f"line {letter.offset + letter.index + 1}: {letter.reason}: {letter.detail}".encode()
        elif output.headers.get("kind") == "trajectory":
            yield "trajectory", output.value
