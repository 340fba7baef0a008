"""Dead letters, back into ``telemetry``: after an upgrade that reads them, or because they were only late.

A replayed event is a record of its own with the header ``replay``, which names the original
(`millstream.streams.dead_letters.Origin`). Assembly never finds it too old, and the audit counts the
original as replayed. Replaying twice is harmless: events are known again by their ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from msgspec import Struct

from millstream.codec import decode_record
from millstream.errors import EventError, PositionLost
from millstream.ledger import read_all
from millstream.partition import partition_of
from millstream.ports import Log, Message, Record
from millstream.streams.dead_letters import REPLAY, DeadLetter, Origin, whole
from millstream.topics import TELEMETRY

BATCH = 200
"""Letters that are appended together."""


class Replayed(Struct, frozen=True, kw_only=True):
    """What became of the letters: ``already`` were replayed before; ``problems``: id and why not."""

    replayed: int = 0
    already: int = 0
    problems: tuple[tuple[str, str], ...] = ()


def replay(log: Log, letters: Iterable[tuple[str, DeadLetter]], *, dry_run: bool = False) -> Replayed:
    """Append the originals of (id, letter) to telemetry again, those that are not there yet."""
    chosen = list(letters)
    origins = set(replayed(log)) if chosen else set()
    fresh: list[Message] = []
    problems: list[tuple[str, str]] = []
    already = 0
    for identity, letter in chosen:
        if letter.origin in origins:
            already += 1
        elif (why := _refused(log, letter)) or (message := _message(log, letter)) is None:
            problems.append((identity, why or "its original was cut, and telemetry does not keep it any more"))
        else:
            origins.add(letter.origin)
            fresh.append(message)
    if not dry_run:
        _append(log, fresh)
    return Replayed(replayed=len(fresh), already=already, problems=tuple(problems))


def replayed(log: Log) -> Iterator[Origin]:
    """The originals of all that was replayed."""
    for partition in range(log.partitions(TELEMETRY.name)):
        for record in read_all(log, TELEMETRY.name, partition):
            if REPLAY in record.headers:
                yield Origin.read(record.headers[REPLAY])


def _refused(log: Log, letter: DeadLetter) -> str:
    if letter.topic != TELEMETRY.name:
        return f"it is of {letter.topic}, and only events of {TELEMETRY.name} can be replayed"
    if letter.topic_id not in ("", log.topic_id(TELEMETRY.name)) and whole(letter) is None:
        return "its topic was deleted and made again, and its original was cut"
    return ""


def _message(log: Log, letter: DeadLetter) -> Message | None:
    record = _source(log, letter)
    raw = whole(letter) if record is None else _line(record, letter.index)
    if raw is None:
        return None
    told = {"dialect": "millstream"} if record is None else record.headers
    headers = {key: value for key, value in told.items() if key not in (REPLAY, "stage", "source", "n")}
    headers[REPLAY] = str(letter.origin)
    return Message(_trajectory(raw) or letter.trajectory_id or (record.key if record else ""), raw, headers)


def _source(log: Log, letter: DeadLetter) -> Record | None:
    """The record that the letter is of, where the log still has it."""
    if letter.topic_id not in ("", log.topic_id(TELEMETRY.name)):
        return None
    try:
        found = log.read(TELEMETRY.name, letter.partition, letter.offset, 1)
    except PositionLost:
        return None
    return found[0] if found and found[0].offset == letter.offset else None


def _line(record: Record, index: int) -> bytes | None:
    value = record.value or b""
    return value if index < 0 else next(islice(decode_record(value)[1], index, None), None)


def _trajectory(raw: bytes) -> str:
    """The trajectory of an event that this version can read; empty for any other."""
    event = decode_record(raw)[0][0]
    return "" if isinstance(event, EventError) else event.trajectory_id


def _append(log: Log, messages: list[Message]) -> None:
    count = log.partitions(TELEMETRY.name)
    by_partition: dict[int, list[Message]] = {}
    for message in messages:
        by_partition.setdefault(partition_of(message.key, count), []).append(message)
    for partition, mine in by_partition.items():
        for first in range(0, len(mine), BATCH):
            log.append(TELEMETRY.name, mine[first : first + BATCH], partition)
