"""Tombstones: what is remembered of a trajectory that can change no more, in a few bytes an event.

A duplicate is told from a late event by a 4-byte CRC of each event's identity. A tombstone is dropped
``retain`` after the sealing when the id itself tells that the trajectory is too old to begin again (a
UUIDv7 that was not imported); any other is kept, or a late resend would begin the trajectory anew and
issue its first revision a second time.
"""

from __future__ import annotations

import sys
from array import array
from collections import deque
from collections.abc import Set as AbstractSet
from heapq import heappop, heappush
from struct import Struct as Layout
from zlib import crc32

from msgspec import Struct

from millstream.streams.assembly_run import Run

_HEAD = Layout(">qH")
_CRC = 4


class Stones(Struct, frozen=True, array_like=True):
    """Tombstones as lists: those dropped next in that order, those whose id or sealing lies ahead of the
    log's time (with when they are dropped), those that are kept.
    """

    passing: list[tuple[str, bytes]]
    ahead: list[tuple[int, str, bytes]]
    kept: list[tuple[str, bytes]]


class Tombstones:
    """The closed trajectories of a partition, by id. ``max_extra``: late identities remembered of each."""

    def __init__(self, retain_ms: int, max_extra: int) -> None:
        self.stones: dict[str, bytes] = {}
        self._retain = retain_ms
        self._max_extra = max_extra
        self._passing: deque[str] = deque()
        self._ahead: list[tuple[int, str]] = []

    def close(self, trajectory_id: str, run: Run, now: int) -> bool:
        """Remember a run; False when it need not be remembered at all."""
        knows_age = run.born >= 0 and not run.imported
        since = max(run.sealed_ms, run.born)
        if knows_age and since + self._retain <= now:
            return False
        marks = array("I", map(crc32, map(str.encode, run.identities)))
        if sys.byteorder == "big":
            marks.byteswap()
        self.stones[trajectory_id] = _HEAD.pack(run.sealed_ms, run.revision) + marks.tobytes()
        if knows_age and run.born <= run.sealed_ms <= now:
            self._passing.append(trajectory_id)
        elif knows_age:
            heappush(self._ahead, (since + self._retain, trajectory_id))
        return True

    def revision(self, trajectory_id: str) -> int:
        """The last revision of a closed trajectory."""
        return int(_HEAD.unpack_from(self.stones[trajectory_id])[1])

    def knows(self, trajectory_id: str, identity: str) -> bool:
        """Whether an event of a closed trajectory was seen before; from now on it was."""
        stone = self.stones[trajectory_id]
        mark = crc32(identity.encode()).to_bytes(_CRC, "little")
        at = stone.find(mark, _HEAD.size)
        while at >= 0 and (at - _HEAD.size) % _CRC:
            at = stone.find(mark, at + 1)
        if at < 0 and len(stone) < _HEAD.size + _CRC * self._max_extra:
            self.stones[trajectory_id] = stone + mark
        return at >= 0

    def renumber(self, trajectory_id: str, revision: int) -> None:
        """The last revision of a closed trajectory is this."""
        stone = self.stones[trajectory_id]
        self.stones[trajectory_id] = _HEAD.pack(_HEAD.unpack_from(stone)[0], revision) + stone[_HEAD.size :]

    def adopt(self, other: Tombstones, names: AbstractSet[str]) -> None:
        """Take over those of another that are named, instead of one's own."""
        mine, theirs = self.dump(), other.dump()
        passing = [(name, stone) for name, stone in mine.passing if name not in names]
        passing += [(name, stone) for name, stone in theirs.passing if name in names]
        self.load(
            Stones(
                sorted(passing, key=lambda one: _HEAD.unpack_from(one[1])[0]),
                sorted([one for one in mine.ahead if one[1] not in names] + [o for o in theirs.ahead if o[1] in names]),
                [one for one in mine.kept if one[0] not in names] + [one for one in theirs.kept if one[0] in names],
            )
        )

    def purge(self, now: int) -> int:
        """Drop what is old enough; how many."""
        before = len(self.stones)
        while self._passing and _HEAD.unpack_from(self.stones[self._passing[0]])[0] + self._retain <= now:
            del self.stones[self._passing.popleft()]
        while self._ahead and self._ahead[0][0] <= now:
            del self.stones[heappop(self._ahead)[1]]
        return before - len(self.stones)

    def dump(self) -> Stones:
        """Everything, in a fixed order."""
        ahead = sorted(self._ahead)
        leaving = {*self._passing, *(name for _, name in ahead)}
        return Stones(
            [(name, self.stones[name]) for name in self._passing],
            [(until, name, self.stones[name]) for until, name in ahead],
            sorted((name, stone) for name, stone in self.stones.items() if name not in leaving),
        )

    def load(self, dumped: Stones) -> None:
        """Replace all by what `dump` gave."""
        self.stones = dict(dumped.passing)
        self._passing = deque(self.stones)
        self._ahead = [(until, name) for until, name, _ in dumped.ahead]
        self.stones.update((name, stone) for _, name, stone in dumped.ahead)
        self.stones.update(dumped.kept)
