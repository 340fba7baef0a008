"""Chunks: the messages of one append as one row, with a checksum over place and bytes."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterator, Sequence

import msgspec

from millstream.errors import EventError, PositionLost
from millstream.ports import Message, Record

CODEC = 0
"""msgpack list of [key, headers, value]; the only codec so far."""
CHUNK_BYTES = 1 << 20
"""A larger append becomes several chunks, so that a reader never has to take it whole."""

Row = tuple[str, int, int, int, int, int, int, bytes]
"""(topic, partition, base_offset, n, log_time, crc, codec, data)."""

_Packed = list[tuple[str, dict[str, str], bytes | None]]
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Packed).decode


def write(connection: sqlite3.Connection, topic: str, partition: int, messages: Sequence[Message], now_ms: int) -> int:
    """Append inside a transaction: chunks and head; the first offset. ``now_ms``: the log time."""
    row = connection.execute("SELECT next FROM head WHERE topic = ? AND partition = ?", (topic, partition)).fetchone()
    first = offset = int(row[0])
    rows: list[Row] = []
    for part in _parts(messages):
        rows.append(_pack(topic, partition, offset, part, now_ms))
        offset += len(part)
    connection.executemany("INSERT INTO chunk VALUES(?, ?, ?, ?, ?, ?, ?, ?)", rows)
    connection.execute(
        "UPDATE head SET next = ?, log_ms = ? WHERE topic = ? AND partition = ?", (offset, now_ms, topic, partition)
    )
    return first


def log_ms(connection: sqlite3.Connection, clock_ms: int) -> int:
    """The time of what is appended now: the clock's, never before anything in this file."""
    latest = connection.execute("SELECT max(log_ms) FROM head").fetchone()[0]
    return max(clock_ms, latest or 0)


def _parts(messages: Sequence[Message]) -> Iterator[Sequence[Message]]:
    start = size = 0
    for index, message in enumerate(messages):
        if size > CHUNK_BYTES:
            yield messages[start:index]
            start, size = index, 0
        size += len(message.value or b"")
    if start < len(messages):
        yield messages[start:]


def _pack(topic: str, partition: int, offset: int, messages: Sequence[Message], now_ms: int) -> Row:
    try:
        data = _encode([(m.key, m.headers, m.value) for m in messages])
    except UnicodeEncodeError as error:
        raise EventError(f"{topic}: a key or header is no UTF-8 text ({error}); clean it before appending") from None
    return (
        topic,
        partition,
        offset,
        len(messages),
        now_ms,
        _crc(topic, partition, offset, len(messages), data),
        CODEC,
        data,
    )


def _crc(topic: str, partition: int, offset: int, n: int, data: bytes) -> int:
    return zlib.crc32(data, zlib.crc32(f"{topic}:{partition}:{offset}:{n}".encode()))


def unpack(row: Row, offset: int) -> list[Record]:
    """The records of a chunk from ``offset`` on. Raises `PositionLost` on a damaged chunk, or when
    ``offset`` lies before it (the chunk between is gone).
    """
    topic, partition, base, n, log_time, crc, codec, data = row
    where = f"{topic}:{partition} at offset {base} ({n} records)"
    if base > offset:
        raise PositionLost(f"{topic}:{partition} {missing(offset, base)}")
    if codec != CODEC:
        raise PositionLost(f"{where} is written in codec {codec}, which this version does not know; upgrade millstream")
    if not isinstance(data, bytes) or _crc(topic, partition, base, n, data) != crc:
        raise PositionLost(
            f"{where} is damaged: its checksum does not match; restore the file from a copy, "
            "or go on without it by --accept-loss"
        )
    packed = _decode(data)
    if base < offset:
        del packed[: offset - base]
    return [
        Record(topic, partition, at, log_time, key, value, headers)
        for at, (key, headers, value) in enumerate(packed, offset)
    ]


def missing(offset: int, end: int) -> str:
    """How records that should be there are told to be gone."""
    return f"has no records {offset} to {end - 1}: restore the file from a copy, or go on without them by --accept-loss"


def select(connection: sqlite3.Connection, topic: str, partition: int, offset: int, max_bytes: int) -> list[Row]:
    """Whole chunks that hold ``offset`` and what follows, until ``max_bytes`` are reached."""
    cursor = connection.execute(
        "SELECT * FROM chunk WHERE topic = ?1 AND partition = ?2 AND base_offset >= coalesce("
        "(SELECT max(base_offset) FROM chunk WHERE topic = ?1 AND partition = ?2 AND base_offset <= ?3), 0) "
        "ORDER BY base_offset",
        (topic, partition, offset),
    )
    rows: list[Row] = []
    size = 0
    for row in cursor:
        rows.append(row)
        size += len(row[7])
        if size >= max_bytes:
            break
    cursor.close()
    return rows
