"""Near-duplicates by MinHash and banding, cheap enough to ask for every rollout.

Of each 32-bit minimum only the low byte is kept (b-bit minwise hashing: Li and König, 2010), so a
signature of 128 values costs 128 bytes. Two texts of Jaccard similarity J agree in a place with
probability J + (1 − J)/256. Candidates share one of 12 bands of 4 places: a pair is found
with probability 1 − (1 − J⁴)¹²: .96 at J = .7, .999 at .8; then all places are counted.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final, TypeAlias

_LOW: Final = 0 if sys.byteorder == "little" else 7
ROWS: Final = 4
BANDS: Final = 12
_BANDS: Final = struct.Struct(f"<{BANDS}I")
"""ROWS bytes a band."""
LOOKED_AT: Final = 16
"""At most this many of a bucket are compared: beyond it a text is so common that any of them will do."""

Item: TypeAlias = tuple[str, bytes]
"""A rollout in a bucket: its group and its compact signature."""


def compact(signature: Sequence[int]) -> bytes:
    """The low byte of each minimum; empty when there is no signature."""
    try:
        return array("Q", signature).tobytes()[_LOW::8]
    except (OverflowError, TypeError):
        return bytes([int(value) & 0xFF for value in signature])


def similarity(left: bytes, right: bytes) -> float:
    """The estimated Jaccard similarity of two compact signatures of one length; 0 of unlike lengths."""
    if not left or len(left) != len(right):
        return 0.0
    differences = int.from_bytes(left, "big") ^ int.from_bytes(right, "big")
    agreeing = differences.to_bytes(len(left), "big").count(0) / len(left)
    return max(0.0, (agreeing - 1 / 256) / (1 - 1 / 256))


class NearDuplicates:
    """An index of signatures, each with the group that it belongs to, within scopes that never mix.

    Buckets are sorted, so that an answer depends on what is in the index and not on how it got there:
    an index built again after a restart answers as the old one did.
    """

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold
        self._scopes: dict[str, list[dict[int, Item | list[Item]]]] = {}

    @property
    def enabled(self) -> bool:
        """A threshold of 1 or more turns it off."""
        return self.threshold < 1.0

    def add(self, scope: str, group: str, signature: bytes) -> None:
        """Remember a rollout's signature."""
        tables = self._scopes.get(scope)
        if tables is None:
            tables = self._scopes[scope] = [{} for _ in range(BANDS)]
        item = (group, signature)
        for table, key in zip(tables, _keys(signature), strict=True):
            held = table.setdefault(key, item)
            if held is item:
                continue
            if isinstance(held, list):
                insort(held, item)
            else:
                table[key] = [held, item] if held <= item else [item, held]

    def discard(self, scope: str, group: str, signature: bytes) -> None:
        """Forget one rollout's signature."""
        item = (group, signature)
        for table, key in zip(self._scopes.get(scope, ()), _keys(signature), strict=False):
            held = table.get(key)
            if isinstance(held, list):
                place = bisect_left(held, item)
                if place < len(held) and held[place] == item:
                    del held[place]
                if len(held) == 1:
                    table[key] = held[0]
            elif held == item:
                del table[key]

    def twin(self, scope: str, group: str, signature: bytes) -> str:
        """Another group that holds a near-duplicate of this signature, or ''."""
        for table, key in zip(self._scopes.get(scope, ()), _keys(signature), strict=False):
            held = table.get(key)
            if held is None:
                continue
            others = (item for item in (held if isinstance(held, list) else (held,)) if item[0] != group)
            for other, theirs in islice(others, LOOKED_AT):
                if similarity(signature, theirs) >= self.threshold:
                    return other
        return ""

    def twin_of_all(self, scope: str, group: str, signatures: Iterable[bytes]) -> str:
        """A group that duplicates a member, when every member has a near-duplicate elsewhere; else ''."""
        found = ""
        for signature in signatures:
            found = self.twin(scope, group, signature)
            if not found:
                return ""
        return found


def _keys(signature: bytes) -> tuple[int, ...]:
    """The bands of a signature as numbers; one that is too short has the missing places empty."""
    return _BANDS.unpack(signature[: _BANDS.size].ljust(_BANDS.size, b"\0"))
