"""Encoded events into records: many of one partition to a record, never over `RECORD_BYTES` unless one event is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

import msgspec
from msgspec import Struct

from millstream.partition import partition_of
from millstream.ports import Message

RECORD_BYTES = 512_000
HEADERS: Mapping[str, str] = {"dialect": "millstream"}

Line: TypeAlias = tuple[str, bytes]
"""A trajectory id and one event of it, encoded, without a line break."""


class _Key(Struct):
    trajectory_id: str = ""


_key = msgspec.json.Decoder(_Key).decode


def keyed(line: bytes) -> Line:
    """The line with its trajectory id read from it; '' when it is no event."""
    try:
        return _key(line).trajectory_id, line
    except msgspec.MsgspecError:
        return "", line


def by_partition(lines: Iterable[Line], partitions: int) -> dict[int, list[Line]]:
    """Lines by the partition of their trajectory, in order."""
    found: dict[int, list[Line]] = {}
    for line in lines:
        found.setdefault(partition_of(line[0], partitions), []).append(line)
    return found


def messages(lines: Iterable[Line], headers: Mapping[str, str] = HEADERS) -> Iterator[Message]:
    """Records of lines that belong to one partition; the key is the first line's trajectory."""
    key, held, size = "", list[bytes](), 0
    for trajectory_id, line in lines:
        if held and size + len(line) >= RECORD_BYTES:
            yield Message(key, b"".join(held), dict(headers))
            held, size = [], 0
        if not held:
            key = trajectory_id
        held += (line, b"\n")
        size += len(line) + 1
    if held:
        yield Message(key, b"".join(held), dict(headers))
