"""What a consumer group brings, as something that a runner reads: records pushed in, records pulled out.

Only the store's position counts, so what was delivered is a hint. A record below the position asked for is
dropped; where records are missing before the next one, or nothing came although there is something, the log
itself is read. A group that begins at a wrong offset, delivers twice or gets stuck changes nothing.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

from millstream.ports import Record
from millstream.streams.inbox import Place, Read

MOST_BYTES: Final = 32 << 20
"""How much may wait to be fed; the consumer waits beyond that."""
RECORD_BYTES: Final = 200
"""What a small record takes in memory beside its value."""


class Delivered:
    """Records of the open places, put by one thread and read by another."""

    def __init__(self, read: Read, max_bytes: int = MOST_BYTES) -> None:
        self.max_bytes = max_bytes
        self._log_read = read
        self._places: dict[Place, deque[Record]] = {}
        self._overdue: set[Place] = set()
        self._bytes = 0
        self._news = threading.Condition()

    def open(self, places: Iterable[Place]) -> None:
        """Take records of these places from now on."""
        with self._news:
            for place in places:
                self._forget(place)
                self._places[place] = deque()

    def close(self, places: Iterable[Place]) -> None:
        """Drop what waits of these places, and what comes."""
        with self._news:
            for place in places:
                self._forget(place)
                self._places.pop(place, None)

    def _forget(self, place: Place) -> None:
        self._bytes -= sum(map(_size, self._places.get(place, ())))
        self._places.get(place, deque()).clear()
        self._overdue.discard(place)

    def put(self, record: Record) -> None:
        """One record more. An offset that is not past the last one begins anew: the group went back."""
        place = record.topic, record.partition
        with self._news:
            queue = self._places.get(place)
            if queue is None:
                return
            if queue and record.offset <= queue[-1].offset:
                self._forget(place)
            queue.append(record)
            self._bytes += _size(record)
            self._news.notify()

    @property
    def full(self) -> bool:
        """Whether the consumer should wait."""
        return self._bytes >= self.max_bytes

    @property
    def waiting_bytes(self) -> int:
        """How much waits to be fed."""
        return self._bytes

    def wait(self, timeout_s: float) -> bool:
        """Wait until something waits to be fed."""
        with self._news:
            return self._news.wait_for(lambda: self._bytes > 0, timeout_s)

    def overdue(self, place: Place) -> None:
        """Nothing of it came for long, and there is something: the next `read` asks the log."""
        with self._news:
            self._overdue.add(place)

    def read(self, topic: str, partition: int, offset: int, max_bytes: int) -> Sequence[Record]:
        """Records from ``offset`` on, as the log would give them; none while none came. Raises
        `PositionLost`.
        """
        place = topic, partition
        with self._news:
            found, ahead = self._take(place, offset, max_bytes)
            overdue = place in self._overdue
            self._overdue.discard(place)
        if found or (ahead is None and not overdue):
            return found
        records = self._log_read(topic, partition, offset, max_bytes)
        if ahead is None:
            return records
        if missed := [record for record in records if record.offset < ahead]:
            return missed
        with self._news:  # offsets that hold no record
            return self._take(place, ahead, max_bytes)[0]

    def _take(self, place: Place, offset: int, max_bytes: int) -> tuple[list[Record], int | None]:
        """What waits from ``offset`` on without a hole, and the offset of the first record behind one."""
        queue = self._places.get(place, deque())
        while queue and queue[0].offset < offset:
            self._bytes -= _size(queue.popleft())
        found: list[Record] = []
        size = 0
        while queue and size < max_bytes and queue[0].offset == offset + len(found):
            found.append(queue.popleft())
            size += _size(found[-1])
        self._bytes -= size
        return found, queue[0].offset if queue and not found else None


def _size(record: Record) -> int:
    return len(record.value or b"") + RECORD_BYTES
