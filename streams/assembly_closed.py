"""Tombstones: what is remembered of a trajectory that can change no more, in a few bytes an event.

A duplicate is told from a late event by a 4-byte CRC of each event's identity. A tombstone is dropped
``retain`` after the sealing when the id itself tells that the trajectory is too old to begin again (a
UUIDv7 that was not imported); any other is kept, or a late resend would begin the trajectory anew and
issue its first revision a second time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from struct import Struct as Layout
from zlib import crc32

from millstream.streams.assembly_run import Run

_HEAD = Layout(">qH")
_CRC = 4


def _crc(identity: str) -> bytes:
    return crc32(identity.encode()).to_bytes(_CRC, "big")


class Tombstones:
    """The closed trajectories of a partition. ``max_extra``: late identities remembered of each."""

    def __init__(self, retain_ms: int, max_extra: int) -> None:
        self._retain = retain_ms
        self._max_extra = max_extra
        self._passing: dict[str, bytes] = {}
        self._queue: deque[str] = deque()
        self._kept: dict[str, bytes] = {}

    def __len__(self) -> int:
        return len(self._passing) + len(self._kept)

    def close(self, trajectory_id: str, run: Run, now: int) -> bool:
        """Remember a run; False when it need not be remembered at all."""
        marks = sorted(_crc(identity) for identity in run.identities)
        stone = _HEAD.pack(run.sealed_ms, run.revision) + b"".join(marks)
        if run.born < 0 or run.imported or run.born > now:
            self._kept[trajectory_id] = stone
        elif max(run.sealed_ms, run.born) + self._retain <= now:
            return False
        elif run.born > run.sealed_ms:
            self._kept[trajectory_id] = stone
        else:
            self._passing[trajectory_id] = stone
            self._queue.append(trajectory_id)
        return True

    def revision(self, trajectory_id: str) -> int | None:
        """The last revision of a closed trajectory; None when it is not one."""
        stone = self._stone(trajectory_id)
        return None if stone is None else int(_HEAD.unpack_from(stone)[1])

    def knows(self, trajectory_id: str, identity: str) -> bool:
        """Whether an event of a closed trajectory was seen before; from now on it was."""
        stone = self._stone(trajectory_id) or b""
        mark = _crc(identity)
        at = stone.find(mark, _HEAD.size)
        while at >= 0 and (at - _HEAD.size) % _CRC:
            at = stone.find(mark, at + 1)
        if at >= 0:
            return True
        if len(stone) < _HEAD.size + _CRC * self._max_extra:
            home = self._kept if trajectory_id in self._kept else self._passing
            home[trajectory_id] = stone + mark
        return False

    def purge(self, now: int) -> int:
        """Drop what is old enough; how many."""
        count = 0
        while self._queue and _HEAD.unpack_from(self._passing[self._queue[0]])[0] + self._retain <= now:
            del self._passing[self._queue.popleft()]
            count += 1
        return count

    def dump(self) -> tuple[list[tuple[str, bytes]], list[tuple[str, bytes]]]:
        """(those that will be dropped, in that order; those kept, by id)."""
        return [(name, self._passing[name]) for name in self._queue], sorted(self._kept.items())

    def load(self, passing: Iterable[tuple[str, bytes]], kept: Iterable[tuple[str, bytes]]) -> None:
        """Replace all by what `dump` gave."""
        self._passing = dict(passing)
        self._queue = deque(self._passing)
        self._kept = dict(kept)

    def _stone(self, trajectory_id: str) -> bytes | None:
        return self._passing.get(trajectory_id) or self._kept.get(trajectory_id)
