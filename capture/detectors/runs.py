"""Runs of letters and digits as long as a key's, and of digits as long as a number of a person's.

One translation, and a search that skips what is shorter.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

SHORTEST: Final = 15
_IN: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-+/"
_FLAT = bytes(97 if byte in _IN else 32 for byte in range(256))
_NEEDLE: Final = b"a" * SHORTEST
SHORTEST_NUMBER: Final = 7
_NUMBERS = bytes(97 if byte in b"0123456789 .()/:+-" else 32 for byte in range(256))
_NUMBER: Final = b"a" * SHORTEST_NUMBER


def runs(data: bytes) -> Iterator[tuple[int, int]]:
    """Where runs of `SHORTEST` and more letters, digits and ``_-+/`` lie, in order."""
    flat = data.translate(_FLAT)
    start = flat.find(_NEEDLE)
    while start >= 0:
        end = flat.find(b" ", start)
        end = len(flat) if end < 0 else end
        yield start, end
        start = flat.find(_NEEDLE, end)


def number_runs(data: bytes) -> Iterator[tuple[int, int]]:
    """Where runs of `SHORTEST_NUMBER` and more digits, blanks and ``.()/:+-`` lie, in order."""
    flat = data.translate(_NUMBERS)
    start = flat.find(_NUMBER)
    while start >= 0:
        end = flat.find(b" ", start)
        end = len(flat) if end < 0 else end
        yield start, end
        start = flat.find(_NUMBER, end)


def has_run(data: bytes, size: int) -> bool:
    """Whether there is a run of that many letters, digits and ``_-+/``."""
    return b"a" * size in data.translate(_FLAT)


def in_text(text: str) -> Iterator[tuple[int, int]]:
    """The same in a text; places count its letters."""
    return runs(text.encode("ascii", "replace"))
