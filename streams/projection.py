"""The projector: ``buffer-events`` into the buffer, with the payloads fetched from ``trajectories``.

It keeps no position of its own: the buffer knows what it has applied, so a buffer that was dropped, or
that lost data, is filled again from there. It decides nothing. When the buffer is full or does not
answer it waits, longer each time, and the log keeps everything meanwhile.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator

import msgspec
from msgspec import Struct

from millstream.errors import PositionLost, Stuck, Unavailable
from millstream.ndjson import cut, filled
from millstream.ports import Buffer, Log, Record
from millstream.rollout import BufferDecision, Position, RolloutAdmitted, RolloutFacts, RolloutId
from millstream.topics import BUFFER_EVENTS, TRAJECTORIES

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0
READ_BYTES = 256 << 10
CACHE_BYTES = 16 << 20

_decision = msgspec.json.Decoder(BufferDecision)
_encode = msgspec.json.Encoder().encode
logger = logging.getLogger(__name__)


class _RolloutJson(Struct, frozen=True, kw_only=True):
    """A `Rollout` whose trajectory stays the bytes that it is in the log."""

    id: RolloutId
    trajectory: msgspec.Raw
    reward: float
    facts: RolloutFacts
    advantage: float


class PayloadReader:
    """Trajectory records by position; neighbours are read together and kept for a while."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self._cache: dict[tuple[int, int], bytes | None] = {}
        self._bytes = 0

    def payload(self, admitted: RolloutAdmitted) -> bytes | None:
        """The `Rollout` JSON of an admission, or None when the log no longer has its trajectory."""
        value = self._value(admitted.position)
        if value is None:
            return None
        return _encode(
            _RolloutJson(
                id=admitted.rollout_id,
                trajectory=msgspec.Raw(value),
                reward=admitted.reward,
                facts=admitted.facts,
                advantage=admitted.advantage,
            )
        )

    def _value(self, position: Position) -> bytes | None:
        place = (position.partition, position.offset)
        if place not in self._cache:
            self._load(position)
        value = self._cache.get(place)
        return _line(value, position.index) if value is not None else None

    def _load(self, position: Position) -> None:
        if position.topic_id != self.log.topic_id(TRAJECTORIES.name):
            return
        if self._bytes > CACHE_BYTES:
            self._cache.clear()
            self._bytes = 0
        try:
            records = self.log.read(TRAJECTORIES.name, position.partition, position.offset, READ_BYTES)
        except PositionLost:
            return
        for record in records:
            self._cache[position.partition, record.offset] = record.value
            self._bytes += len(record.value or b"")


def _line(value: bytes, index: int) -> bytes | None:
    """The index-th line; a record of ``trajectories`` has one."""
    lines = cut(value)
    return lines[index] if 0 <= index < len(lines) else None


class Projector:
    """Projects the decisions of one namespace. ``clock`` counts seconds, for the pauses."""

    def __init__(self, log: Log, buffer: Buffer, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.log = log
        self.buffer = buffer
        self.clock = clock
        self.missing = 0
        """Rollouts admitted whose trajectory the log no longer has."""
        self.waiting = ""
        """Why nothing goes on, or ''."""
        self._payloads = PayloadReader(log)
        self._done = -1
        self._pause = FIRST_PAUSE_S
        self._retry_at = 0.0

    def run_once(self) -> int:
        """Project what is there now, or nothing while it waits; how many records it took."""
        if self._retry_at and self.clock() < self._retry_at:
            return 0
        try:
            count = self.project()
        except Stuck:
            raise
        except Unavailable as error:
            if not self.waiting:
                logger.warning("the buffer waits: %s", error)
            self.waiting = str(error)
            self._done = -1
            self._retry_at = self.clock() + self._pause
            self._pause = min(self._pause * 2, LONGEST_PAUSE_S)
            return 0
        self.waiting, self._retry_at, self._pause = "", 0.0, FIRST_PAUSE_S
        return count

    def project(self) -> int:
        """Project one read's worth of records. Raises `Unavailable`; what was applied stays applied."""
        first, end = self.log.bounds(BUFFER_EVENTS.name)
        if self._done == end:
            return 0
        offset = max(first, self.buffer.applied())
        if offset >= end:
            self._done = end
            return 0
        records = self.log.read(BUFFER_EVENTS.name, 0, offset)
        last_applied = offset - 1
        for record in records:
            if decisions := self._decisions(record):
                self.buffer.apply(record.offset, decisions, dict(self._fetched(decisions)), record.headers)
                last_applied = record.offset
        if records and last_applied < records[-1].offset:
            self.buffer.apply(records[-1].offset, (), {})
        return len(records)

    def _decisions(self, record: Record) -> list[BufferDecision]:
        decoded = (_decision.decode(line) for line in filled(record.value))
        return [decision for decision in decoded if decision.namespace == self.buffer.namespace]

    def _fetched(self, decisions: list[BufferDecision]) -> Iterator[tuple[RolloutId, bytes]]:
        admissions = [decision for decision in decisions if isinstance(decision, RolloutAdmitted)]
        for admitted in sorted(admissions, key=lambda one: one.position):
            payload = self._payloads.payload(admitted)
            if payload is None:
                self.missing += 1
                logger.warning("the log has no trajectory %s any more", admitted.trajectory_id)
            else:
                yield admitted.rollout_id, payload


def rebuild(buffer: Buffer, log: Log) -> int:
    """Drop the buffer and fold its decisions again, none decided anew; how many records that took.
    Raises `Unavailable`.
    """
    buffer.clear()
    projector, total = Projector(log, buffer), 0
    while count := projector.project():
        total += count
    return total
