"""MinHash signatures of texts, so that near-duplicates are found without comparing texts.

One-permutation hashing: each shingle of 5 bytes is hashed once (see `shingles`); 7 bits choose one of 128 places, the
smallest hash of a place stays in it. Empty places borrow from a full one, each by a fixed walk of
its own ("optimal densification", Shrivastava 2017), so that two texts of Jaccard similarity J agree in a
place with probability J. One hash a shingle instead of 128 makes it cheap enough for every trajectory.
Signatures are kept in the log: changing anything here makes old and new ones incomparable.
"""

from __future__ import annotations

from typing import Final
from zlib import crc32

from millstream.streams.shingles import EMPTY, PLACES, minima

MAX_BYTES: Final = 8_192
"""Of a longer text the first and the last half of this are signed."""


def signature(text: str) -> tuple[int, ...]:
    """The signature of a text: 128 numbers of 16 bits, or () for an empty one."""
    data = text.encode("utf-8", "replace")
    if len(data) > MAX_BYTES:
        data = data[: MAX_BYTES // 2] + data[-MAX_BYTES // 2 :]
    if not data:
        return ()
    least = minima()(data)
    if EMPTY in least:
        least = [value if value != EMPTY else _borrowed(least, place) for place, value in enumerate(least)]
    return tuple([value & 0xFFFF for value in least])


def similarity(left: tuple[int, ...], right: tuple[int, ...]) -> float:
    """The estimated Jaccard similarity of two texts by their signatures; 0 when one is empty."""
    if not left or len(left) != len(right):
        return 0.0
    return sum(a == b for a, b in zip(left, right, strict=True)) / len(left)


def _borrowed(least: list[int], place: int) -> int:
    """The value of the first full place on an empty place's walk through all of them."""
    step = _STEPS[place]
    while least[place] == EMPTY:
        place = (place + step) & 127
    return least[place]


_STEPS: Final = tuple((crc32(b"step %d" % place) | 1) & 127 for place in range(PLACES))
"""Odd, so that every walk visits all 128 places."""
