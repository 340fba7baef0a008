"""``millstream dead-letters``: what could not be used, where it came from, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec
from msgspec import Struct

from millstream.errors import SettingsError
from millstream.ledger import read_all
from millstream.ndjson import UNREADABLE
from millstream.ports import Log, Record
from millstream.streams.dead_letters import DeadLetter, original
from millstream.topics import DEAD_LETTERS

_LETTER = msgspec.json.Decoder(DeadLetter)


class Row(Struct, frozen=True, kw_only=True):
    """A line of ``dead-letters list``. ``id`` (``partition:offset``) is what ``show`` takes; ``place`` is
    ``topic:partition:offset:index`` of the original.
    """

    id: str
    stage: str
    reason: str
    place: str
    trajectory_id: str
    log_ms: int
    detail: str
    size: int


def rows(log: Log, *, reason: str = "") -> list[Row]:
    """Every dead letter, oldest first; ``reason`` keeps those whose reason begins so."""
    return [
        Row(
            id=f"{record.partition}:{record.offset}",
            stage=letter.stage,
            reason=letter.reason,
            place=f"{letter.topic}:{letter.partition}:{letter.offset}:{letter.index}",
            trajectory_id=letter.trajectory_id,
            log_ms=letter.log_ms,
            detail=letter.detail,
            size=letter.size,
        )
        for record, letter in _letters(log)
        if letter.reason.startswith(reason)
    ]


def chosen(log: Log, identities: Sequence[str], reason: str) -> Iterator[tuple[str, DeadLetter]]:
    """The letters with these ids, or else those whose reason begins so, with their ids. Raises `SettingsError`."""
    if identities:
        yield from ((identity, show(log, identity)) for identity in identities)
        return
    for record, letter in _letters(log):
        if letter.reason.startswith(reason):
            yield f"{record.partition}:{record.offset}", letter


def reasons(log: Log) -> dict[str, int]:
    """How many there are of each reason, the most frequent first."""
    return dict(Counter(letter.reason for _, letter in _letters(log)).most_common())


def show(log: Log, identity: str) -> DeadLetter:
    """One dead letter whole, by ``partition:offset``. Raises `SettingsError` when there is none."""
    partition, _, offset = identity.rpartition(":")
    if not (offset.isdigit() and (partition or "0").isdigit()):
        raise SettingsError(
            f"{identity!r} is no dead letter's id; `millstream dead-letters list` shows them (0:12, say)"
        )
    place = int(partition or "0")
    if place < log.partitions(DEAD_LETTERS.name):
        first, end = log.bounds(DEAD_LETTERS.name, place)
        if first <= int(offset) < end:
            return _letter(log.read(DEAD_LETTERS.name, place, int(offset))[0])
    raise SettingsError(f"there is no dead letter {identity!r}; `millstream dead-letters list` shows those there are")


def _letters(log: Log) -> Iterator[tuple[Record, DeadLetter]]:
    for partition in range(log.partitions(DEAD_LETTERS.name)):
        for record in read_all(log, DEAD_LETTERS.name, partition):
            if record.value:
                yield record, _letter(record)


def _letter(record: Record) -> DeadLetter:
    """The letter of a record; one that says so, where the record holds none: another wrote it."""
    try:
        return _LETTER.decode(record.value or b"")
    except UNREADABLE as error:
        text, encoding = original(record.value or b"")
        return DeadLetter(
            stage="",
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            index=-1,
            reason="no_letter",
            detail=f"not a dead letter: {error}",
            log_ms=record.log_ms,
            size=len(record.value or b""),
            encoding=encoding,
            original=text,
        )
