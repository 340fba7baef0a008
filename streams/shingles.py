"""Hashes of all shingles of a text at once, and the least of each place: the inner loop of `signatures`.

A shingle is 5 bytes, read as a number x; its hash is the upper half of x·K mod 2⁶⁴ (multiply-shift:
Dietzfelbinger 1997; measured on edited texts its Jaccard estimates err as those of CRC-32 do). Without
numpy one product of two long integers hashes the whole text: each shingle has a lane of 16 bytes, wide
enough that no product reaches the next. With numpy it is some twenty times as fast and gives the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from struct import unpack
from typing import Final

PLACES: Final = 128
SHINGLE: Final = 5
EMPTY: Final = 1 << 32
"""What an empty place holds: more than any hash."""
FACTOR: Final = 0x9E3779B97F4A7C15

Minima = Callable[[bytes], list[int]]


@cache
def minima() -> Minima:
    """The faster of the two ways that there is."""
    try:
        import numpy as np  # noqa: F401 — its presence is what is asked
    except ImportError:
        return minima_by_integers
    return minima_by_numpy


def minima_by_integers(data: bytes) -> list[int]:
    """The least 32-bit hash in each of 128 places (the upper 7 bits choose it), `EMPTY` where none fell."""
    data = data.ljust(SHINGLE, b"\0")
    count = len(data) - SHINGLE + 1
    lanes = bytearray(16 * count)
    for byte in range(SHINGLE):
        lanes[byte::16] = data[byte : byte + count]
    product = (int.from_bytes(lanes, "little") * FACTOR).to_bytes(16 * count + 8, "little")
    least = [EMPTY] * PLACES
    for value in set(unpack(f"<{4 * count}I", product[: 16 * count])[1::4]):
        place = value >> 25
        if value < least[place]:  # noqa: PLR1730 — min() takes twice as long
            least[place] = value
    return least


def minima_by_numpy(data: bytes) -> list[int]:
    """The same, by arrays: every byte begins a number of 8 bytes, of which the first 5 are the shingle."""
    import numpy as np

    padded = data.ljust(SHINGLE, b"\0") + b"\0\0\0"
    numbers = np.ndarray((len(padded) - 7,), "<u8", padded, 0, (1,)) & np.uint64(2**40 - 1)
    hashes = (numbers * np.uint64(FACTOR)) >> np.uint64(32)
    least = np.full(PLACES, EMPTY, np.uint64)
    np.minimum.at(least, (hashes >> np.uint64(25)).astype(np.intp), hashes)
    found: list[int] = least.tolist()
    return found
