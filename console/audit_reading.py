"""How an audit reads: positions first, then the ends of the topics from the last to the first, then the
records up to those ends. So whatever a stage had read by then is found downstream, and whatever is found
downstream is found upstream, while everything goes on running.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from msgspec import Struct, field

from millstream.delivery import Marks
from millstream.errors import PositionLost
from millstream.partition import slot
from millstream.ports import Gap, Log, Record, Store
from millstream.topics import ALL, BUFFER_EVENTS, DEAD_LETTERS, GRADES, POLICY_EVENTS, TELEMETRY, TRAJECTORIES

_FLOW = (BUFFER_EVENTS, DEAD_LETTERS, GRADES, TRAJECTORIES, TELEMETRY, POLICY_EVENTS)
"""From the last to the first: what a record is made from is in a later one of these."""
ASSEMBLE, GRADE, BUFFER = "assemble", "grade", "buffer"
_READS = ((ASSEMBLE, TELEMETRY), (GRADE, TRAJECTORIES), (BUFFER, GRADES))
POLL_S = 0.05


def lag(log: Log, store: Store, wait_s: float) -> dict[str, int]:
    """How many records each stage has yet to read or to publish, where there are any, after waiting ``wait_s``
    in all.

    The cut is fixed stage by stage: first what telemetry holds now, then what the stage made of it.
    """
    deadline = time.monotonic() + wait_s
    found: dict[str, int] = {}
    for stage, topic in _READS:
        ends = {slot(topic.name, n): log.bounds(topic.name, n)[1] for n in range(log.partitions(topic.name))}
        while (missing := _missing(store, stage, ends)) and time.monotonic() < deadline:
            time.sleep(POLL_S)
        if missing:
            found[stage] = missing
    return found


def _missing(store: Store, stage: str, ends: Mapping[str, int]) -> int:
    read = {(p.stage, slot(p.topic, p.partition)): p.offset for p in store.positions()}
    unread = sum(max(0, end - position(read, stage, place)) for place, end in ends.items())
    return unread + sum(count for name, count in store.waiting().items() if name.startswith(stage))


def position(read: Mapping[tuple[str, str], int], stage: str, place: str) -> int:
    """How far a stage has read a place; of several whose name begins so (one a namespace) the least far."""
    return min(
        (offset for (name, where), offset in read.items() if where == place and name.startswith(stage)), default=0
    )


class Hole(Struct, frozen=True):
    """Records [first, end) of a place that can't be read."""

    place: str
    first: int
    end: int
    why: str


class Reading(Struct, kw_only=True):
    """The cut: how far each stage was (``read``: by stage and ``topic:partition``), and the bounds of
    every place, the id of every topic. ``holes`` fills while records are read.
    """

    log: Log
    gaps: tuple[Gap, ...]
    read: dict[tuple[str, str], int]
    first: dict[str, int]
    end: dict[str, int]
    ids: dict[str, str]
    holes: dict[tuple[str, int], Hole] = field(default_factory=dict)
    known: dict[tuple[str, str], int] = field(default_factory=dict)

    @classmethod
    def take(cls, log: Log, store: Store) -> Reading:
        """Fix the cut now."""
        assert {topic.name for topic in _FLOW} == {topic.name for topic in ALL}
        read = {(p.stage, slot(p.topic, p.partition)): p.offset for p in store.positions()}
        bounds = {
            slot(topic.name, partition): log.bounds(topic.name, partition)
            for topic in _FLOW
            for partition in range(log.partitions(topic.name))
        }
        return cls(
            log=log,
            gaps=store.gaps(),
            read=read,
            first={place: first for place, (first, _) in bounds.items()},
            end={place: end for place, (_, end) in bounds.items()},
            ids={topic.name: log.topic_id(topic.name) for topic in _FLOW},
        )

    def position(self, stage: str, topic: str, partition: int) -> int:
        """How far a stage had read."""
        key = (stage, slot(topic, partition))
        if key not in self.known:
            self.known[key] = position(self.read, *key)
        return self.known[key]

    def whole(self, topic: str) -> bool:
        """Whether a topic can be read from its very beginning, without holes, and never was another one."""
        places = [slot(topic, partition) for partition in range(self.log.partitions(topic))]
        return not (
            any(self.first[place] for place in places)
            or any(hole.place in places for hole in self.holes.values())
            or any(gap.topic == topic and gap.topic_id != self.ids[topic] for gap in self.gaps)
        )

    def lost(self, stage: str, topic: str, partition: int, offset: int) -> bool:
        """Whether a person accepted that a stage never reads this record."""
        return any(
            gap.first <= offset < gap.end
            for gap in self.gaps
            if (gap.stage, gap.topic, gap.partition, gap.topic_id) == (stage, topic, partition, self.ids[topic])
        )

    def records(self, topic: str) -> Iterator[Record]:
        """Every record up to the cut, partition by partition, repetitions left out; holes are noted and
        stepped over.
        """
        marks = Marks()
        for partition in range(self.log.partitions(topic)):
            place = slot(topic, partition)
            offset, end = self.first[place], self.end[place]
            while offset < end:
                try:
                    batch = self.log.read(topic, partition, offset)
                except PositionLost as lost:
                    resume = end if lost.resume is None else min(lost.resume, end)
                    self.holes[place, offset] = Hole(place, offset, resume, str(lost))
                    offset = max(resume, offset + 1)
                    continue
                yield from marks.new(record for record in batch if record.offset < end)
                offset = batch[-1].offset + 1 if batch else end
