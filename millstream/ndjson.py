"""NDJSON: the lines of a value, and what decoding one of them may raise."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from typing import Final

import msgspec

UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for bytes that it can't decode: no JSON, of another shape, no UTF-8, nested too deep."""


def cut(value: bytes) -> list[bytes]:
    """The lines of a value, without their newlines; what ends with one has no empty line after it. A file finds them
    with memchr, which is twice as fast as ``bytes.split``.
    """
    lines = [line[:-1] for line in BytesIO(value)]
    if lines and not value.endswith(b"\n"):
        lines[-1] = value[-len(lines[-1]) - 1 :]
    return lines


def filled(value: bytes | None) -> Iterator[bytes]:
    """The lines that hold something; none of a tombstone."""
    return (line for line in cut(value or b"") if line and not line.isspace())
