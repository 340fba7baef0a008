"""Reading ``policy-events``: every process that asks what stands folds the topic itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from millstream.delivery import Marks
from millstream.errors import PositionLost
from millstream.ndjson import UNREADABLE, filled
from millstream.policy import AnyPolicyEvent, PolicyLedger
from millstream.ports import Log, Message, Record
from millstream.topics import POLICY_EVENTS

_EVENTS = msgspec.json.Decoder(AnyPolicyEvent)


def read_all(
    log: Log, topic: str, partition: int = 0, offset: int | None = None, marks: Marks | None = None
) -> Iterator[Record]:
    """Every record from ``offset`` (default: the first kept) to the end as it is now, repetitions left
    out; ``marks``: what was read before ``offset``.
    """
    first, end = log.bounds(topic, partition)
    at = first if offset is None else offset
    marks = marks or Marks()
    while at < end:
        records = log.read(topic, partition, at)
        if not records:
            return
        yield from marks.new(records)
        at = records[-1].offset + 1


def next_batch(log: Log, topic: str, offsets: Mapping[int, int], max_bytes: int) -> tuple[int, Sequence[Record]] | None:
    """For who only follows a topic: the next records of the first partition that has some, and which it is; None when
    all of it is read. ``offsets``: the next one by partition. Goes on past what is damaged, which is for the stages to
    say. Raises `PositionLost` where nothing tells where to go on.
    """
    for partition in range(log.partitions(topic)):
        at = max(offsets.get(partition, 0), log.bounds(topic, partition)[0])
        try:
            records = log.read(topic, partition, at, max_bytes)
        except PositionLost as lost:
            if lost.resume is None or lost.resume <= at:
                raise
            records = log.read(topic, partition, lost.resume, max_bytes)
        if records:
            return partition, records
    return None


def policy_events(record: Record) -> list[AnyPolicyEvent | None]:
    """The events of a record of ``policy-events`` (NDJSON), stamped with the log's time; None for a
    line that this version does not read.
    """
    return [_event(line, record.log_ms) for line in filled(record.value)]


def _event(line: bytes, log_ms: int) -> AnyPolicyEvent | None:
    try:
        return msgspec.structs.replace(_EVENTS.decode(line), log_ms=log_ms)
    except UNREADABLE:
        return None


class LedgerReader:
    """A `PolicyLedger` that follows the topic: each `refresh` folds what was appended since."""

    def __init__(self, log: Log, claim_timeout_ms: int = 60_000) -> None:
        self.log = log
        self.ledger = PolicyLedger(claim_timeout_ms=claim_timeout_ms)
        self.offset = 0
        """The next offset to fold: what this view of the ledger is as new as."""
        self.unreadable = 0
        self._marks = Marks()

    def refresh(self) -> PolicyLedger:
        """The ledger as new as the log is now. Raises `Unavailable`."""
        start = max(self.offset, self.log.bounds(POLICY_EVENTS.name)[0])
        for record in read_all(self.log, POLICY_EVENTS.name, 0, start, self._marks):
            self.offset = record.offset + 1
            for event in policy_events(record):
                if event is None:
                    self.unreadable += 1
                else:
                    self.ledger.apply(event)
        return self.ledger


def append_policy_events(log: Log, events: Sequence[AnyPolicyEvent]) -> int:
    """Append decisions in order, all or nothing; the offset of the first. Raises `Unavailable`."""
    messages = [Message(key=event.lineage, value=msgspec.json.encode(event)) for event in events]
    return log.append(POLICY_EVENTS.name, messages)
