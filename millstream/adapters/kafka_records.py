"""What a fetch of kafka-python brings, as records. Other producers write what they like in keys, values and headers,
and in the names of headers, which the library refuses together with their batch when they are no UTF-8.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

from kafka.errors import CorruptRecordError
from kafka.record.memory_records import MemoryRecords
from kafka.record.util import decode_varint
from msgspec import Struct

from millstream.errors import PositionLost
from millstream.partition import slot
from millstream.ports import Record

_LAST_OFFSET, _LAST_MS = 1 << 42, 1 << 62
"""What is believed of offsets and times: states hold an offset and a line in 64 bits."""
_BROKEN = (CorruptRecordError, AssertionError, EOFError, IndexError, OSError, ValueError, struct.error, zlib.error)
"""What the library raises for bytes that are no batch (of which offset, codec or version whatever)."""


class _Raw(Struct, frozen=True):
    """A record as the library gives it; names of headers as bytes."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[bytes | str, bytes | None]]


def unpack(batches: MemoryRecords, topic: str, partition: int, offset: int, max_bytes: int) -> list[Record]:
    """The records of a fetch from an offset on. Raises `PositionLost` where the next one can't be read, with the
    offset after its batch where that is known.
    """
    found: list[Record] = []
    size = 0
    resume: int | None = None
    try:
        while (batch := batches.next_batch()) is not None and size < max_bytes:
            resume = getattr(batch, "next_offset", None)
            if not batch.validate_crc():
                raise CorruptRecordError("its checksum does not hold")
            if getattr(batch, "is_control_batch", False):
                continue
            for record in _told(batch):
                if record.offset < offset:
                    continue
                if record.offset > _LAST_OFFSET:
                    raise CorruptRecordError(f"its offset {record.offset} is none")
                if size >= max_bytes:
                    break
                found.append(_record(record, topic, partition))
                size += len(record.value or b"") + len(record.key or b"")
            resume = None
    except _BROKEN as error:
        if not found:
            place = f"{slot(topic, partition)}: the batch at {offset} is damaged: {error}"
            raise PositionLost(place, resume=resume) from None
    return found


def _told(batch: Any) -> Iterator[Any]:
    """The records of a batch whose checksum holds; those that the library refuses are read again, leniently."""
    try:
        yield from batch
    except CorruptRecordError:
        if getattr(batch, "magic", 0) < 2:
            raise
        yield from _leniently(batch)


def _leniently(batch: Any) -> Iterator[_Raw]:
    """The rest of a batch, from the record that the library stumbled over on."""
    buffer, at = batch._buffer, batch._pos  # noqa: SLF001 — it offers no other way on
    for _ in range(batch._next_record_index, batch.records_count):  # noqa: SLF001
        length, start = decode_varint(buffer, at)
        record, end = _one(batch, buffer, start)
        at = start + length
        if end != at:
            raise CorruptRecordError(f"a record of {length} bytes ends after {end - start}")
        yield record


def _one(batch: Any, buffer: bytes, at: int) -> tuple[_Raw, int]:
    """The record whose attributes are at a place, and where it ends."""
    _, at = decode_varint(buffer, at)
    since, at = decode_varint(buffer, at)
    number, at = decode_varint(buffer, at)
    key, at = _bytes(buffer, at)
    value, at = _bytes(buffer, at)
    count, at = decode_varint(buffer, at)
    headers: list[tuple[bytes | str, bytes | None]] = []
    for _ in range(count):
        name, at = _bytes(buffer, at)
        told, at = _bytes(buffer, at)
        headers.append((name or b"", told))
    own_time = batch.timestamp_type == batch.LOG_APPEND_TIME
    timestamp = batch.max_timestamp if own_time else batch.first_timestamp + since
    return _Raw(batch.base_offset + number, timestamp, key, value, headers), at


def _bytes(buffer: bytes, at: int) -> tuple[bytes | None, int]:
    """Bytes after their length, None for a negative one. Raises `CorruptRecordError` where they run over the end."""
    length, at = decode_varint(buffer, at)
    if length < 0:
        return None, at
    if at + length > len(buffer):
        raise CorruptRecordError("a field runs over the end of its batch")
    return bytes(buffer[at : at + length]), at + length


def _record(record: Any, topic: str, partition: int) -> Record:
    return Record(
        topic,
        partition,
        record.offset,
        min(max(record.timestamp, 0), _LAST_MS),
        _text(record.key),
        None if record.value is None else bytes(record.value),
        {_text(name): _text(value) for name, value in record.headers},
    )


def _text(raw: bytes | str | None) -> str:
    """A text, whatever the bytes are."""
    return raw if isinstance(raw, str) else bytes(raw or b"").decode("utf-8", errors="replace")
