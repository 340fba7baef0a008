"""The inputs of a stage as one stream: merged by log time, then by the order of its inputs.

A pure replay of complete topics therefore always gives the same order; live, what has not arrived yet
can't be waited for, and the journal keeps the order that was taken.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence

from millstream.partition import slot
from millstream.ports import Consumed, Record

Place = tuple[str, int]
Read = Callable[[str, int, int, int], Sequence[Record]]
"""(topic, partition, offset, max bytes) → records."""


class Inbox:
    """What was read and not yet fed. ``positions`` are by ``topic:partition``."""

    def __init__(self, read: Read, places: Sequence[Place], positions: Mapping[str, int], max_bytes: int) -> None:
        self.read = read
        self.max_bytes = max_bytes
        self._waiting: dict[Place, deque[Record]] = {place: deque() for place in places}
        self._next = {place: positions.get(slot(*place), 0) for place in places}
        self._ended: set[Place] = set()

    def begin(self) -> None:
        """Look again at inputs that were at their end."""
        self._ended.clear()

    def pop(self) -> Record | None:
        """The next record, or None when every input is at its end."""
        best: deque[Record] | None = None
        for place, waiting in self._waiting.items():
            if not waiting and not self._refill(place, waiting):
                continue
            if best is None or waiting[0].log_ms < best[0].log_ms:
                best = waiting
        return best.popleft() if best else None

    def _refill(self, place: Place, waiting: deque[Record]) -> bool:
        if place in self._ended:
            return False
        records = self.read(*place, self._next[place], self.max_bytes)
        if not records:
            self._ended.add(place)
            return False
        waiting.extend(records)
        self._next[place] = records[-1].offset + 1
        return True

    def __len__(self) -> int:
        return sum(len(waiting) for waiting in self._waiting.values())


class Runs:
    """The offsets fed, in order, as runs that are as long as can be."""

    def __init__(self) -> None:
        self._runs: list[list[int]] = []
        self._places: list[Place] = []

    def add(self, record: Record) -> None:
        """Count one record as fed."""
        place = (record.topic, record.partition)
        if self._places and self._places[-1] == place and self._runs[-1][1] == record.offset:
            self._runs[-1][1] += 1
        else:
            self._places.append(place)
            self._runs.append([record.offset, record.offset + 1])

    def consumed(self) -> tuple[Consumed, ...]:
        """The runs so far."""
        return tuple(Consumed(*place, first, end) for place, (first, end) in zip(self._places, self._runs, strict=True))
