"""Feedback that names a response and no run: found its run, however early or late it comes.

Assembly can't place it (its run lies in any partition) and makes a dead letter of it, reason ``unjoined``. This worker
reads those, looks the response up among the trajectories, and puts the feedback back into ``telemetry`` as that of the
run, with the header of a replay; the letter then counts as replayed. What nothing is known of yet waits for the
trajectory to come. A response that several runs tell is nobody's: it stays a letter.

The lookup is a projection of ``trajectories``, made when it is first needed; what it holds is bounded, and older
responses are looked for in the log itself. Joining twice is joining once: ids are derived.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from millstream.codec import decode, digest, encode
from millstream.dialects.reading import LOGS, mapped
from millstream.errors import EventError
from millstream.events import EventId, FeedbackGiven, TrajectoryId
from millstream.ledger import read_all
from millstream.ndjson import UNREADABLE
from millstream.partition import partition_of
from millstream.ports import Log, Message, Record
from millstream.streams.dead_letters import REPLAY, UNJOINED, DeadLetter, Origin, whole
from millstream.topics import DEAD_LETTERS, TELEMETRY, TRAJECTORIES

REMEMBERED: Final = 500_000
"""How many responses are kept with their runs."""
WAITING: Final = 100_000
"""How much feedback may wait; more stays a dead letter that is put back by hand."""


class Place(Protocol):
    """Where the worker keeps how far it is, so that a restart goes on with what waits."""

    def load(self, topic_id: str) -> Mapping[int, int]:
        """The offset of ``dead-letters`` by partition from which on some may wait; none for another topic."""
        ...

    def save(self, topic_id: str, offsets: Mapping[int, int]) -> None:
        """Keep the offsets. Raises `Unavailable`."""
        ...


class _Response(Struct, tag_field="kind", tag="ModelResponded"):
    response_id: str = ""


class _Told(Struct):
    id: str
    events: tuple[msgspec.Raw, ...] = ()


class Waiting(Struct, frozen=True):
    """Feedback that waits, and where its letter lies."""

    event: FeedbackGiven
    origin: Origin
    partition: int
    offset: int


_letter = msgspec.json.Decoder(DeadLetter).decode
_told = msgspec.json.Decoder(_Told).decode
_response = msgspec.json.Decoder(_Response).decode
_ASKED: Final = b'"response_id":"'


class FeedbackJoiner:
    """A worker (see `millstream.bootstrap.patience`) that steps through letters and trajectories."""

    busy: Final = False

    def __init__(
        self,
        log: Log,
        place: Place,
        *,
        remembered: int = REMEMBERED,
        pause_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``pause_s``: how long it leaves a log alone that is asked over a network; ``clock`` counts seconds."""
        self._log, self._place = log, place
        self._pause_s, self._clock, self._next = pause_s, clock, 0.0
        self._topic_id = log.topic_id(DEAD_LETTERS.name)
        self._letters = dict(place.load(self._topic_id))
        self._saved = dict(self._letters)
        self._read: dict[int, int] = {}
        self._runs: dict[str, str] = {}
        self._remembered = remembered
        self._forgot = False
        self.waiting: dict[str, list[Waiting]] = {}

    def step(self) -> bool:
        """Join what can be joined now; whether anything happened. Raises `Unavailable`."""
        if self._pause_s and self._clock() < self._next:
            return False
        self._next = self._clock() + self._pause_s
        fresh = self._new_letters()
        if not self.waiting:
            self._note()
            return False
        self._follow()
        if self._forgot and fresh:
            self._search(fresh)
        joined = self._join()
        self._note()
        return joined

    def _new_letters(self) -> set[str]:
        """Take what became a letter since; the responses that are asked for."""
        fresh: set[str] = set()
        for partition in range(self._log.partitions(DEAD_LETTERS.name)):
            start = self._letters.get(partition)
            for record in read_all(self._log, DEAD_LETTERS.name, partition, _kept(self._log, partition, start)):
                self._letters[partition] = record.offset + 1
                for one in feedback_of(record):
                    if sum(map(len, self.waiting.values())) < WAITING:
                        self.waiting.setdefault(one.event.response_id, []).append(one)
                        fresh.add(one.event.response_id)
        return fresh

    def _follow(self) -> None:
        """Read on in ``trajectories``: which run tells which response."""
        for partition in range(self._log.partitions(TRAJECTORIES.name)):
            first = self._log.bounds(TRAJECTORIES.name, partition)[0]
            for record in read_all(self._log, TRAJECTORIES.name, partition, max(self._read.get(partition, 0), first)):
                self._read[partition] = record.offset + 1
                for run, response in responses_of(record):
                    self._learn(run, response)

    def _learn(self, run: str, response: str) -> None:
        known = self._runs.get(response)
        self._runs[response] = run if known in (None, run) else ""
        if len(self._runs) > self._remembered:
            del self._runs[next(iter(self._runs))]
            self._forgot = True

    def _search(self, wanted: set[str]) -> None:
        """Look for responses in all of the log, since not all are remembered."""
        for partition in range(self._log.partitions(TRAJECTORIES.name)):
            for record in read_all(self._log, TRAJECTORIES.name, partition):
                for run, response in responses_of(record):
                    if response in wanted:
                        self._learn(run, response)

    def _join(self) -> bool:
        """Append the feedback whose run is known."""
        count = self._log.partitions(TELEMETRY.name)
        found = [response for response in self.waiting if self._runs.get(response)]
        for response in found:
            run = TrajectoryId(self._runs[response])
            messages = [_message(one, run) for one in self.waiting[response]]
            self._log.append(TELEMETRY.name, messages, partition_of(run, count))
            del self.waiting[response]
        return bool(found)

    def _note(self) -> None:
        """Keep from where on a restart has to read letters."""
        oldest = dict(self._letters)
        for one in (one for some in self.waiting.values() for one in some):
            oldest[one.partition] = min(oldest.get(one.partition, one.offset), one.offset)
        if oldest != self._saved:
            self._place.save(self._topic_id, oldest)
            self._saved = oldest


def feedback_of(record: Record) -> Iterator[Waiting]:
    """The feedback of a record of ``dead-letters`` that names a response and no run."""
    try:
        letter = _letter(record.value or b"")
    except UNREADABLE:
        return
    raw = whole(letter) if letter.reason == UNJOINED else None
    for event in _events(raw) if raw is not None else ():
        if isinstance(event, FeedbackGiven) and event.response_id:
            yield Waiting(event, letter.origin, record.partition, record.offset)


def responses_of(record: Record) -> Iterator[tuple[str, str]]:
    """(run, response) of a record of ``trajectories``."""
    value = record.value or b""
    if record.headers.get("kind") == "feedback" or _ASKED not in value:
        return
    try:
        told = _told(value)
    except UNREADABLE:
        return
    for raw in told.events:
        if _ASKED in bytes(raw):
            try:
                response = _response(raw).response_id
            except UNREADABLE:
                continue
            if response:
                yield told.id, response


def _events(raw: bytes) -> list[object]:
    """What a line tells: one of ours, or one of a log record in a dialect."""
    try:
        return [decode(raw)]
    except EventError:
        pass
    try:
        return list(mapped(raw, {"dialect": LOGS}).events)
    except EventError:
        return []


def _message(one: Waiting, run: TrajectoryId) -> Message:
    event = replace(one.event, id=EventId(digest("joined", one.event.id, run)), trajectory_id=run)
    return Message(run, encode(event) + b"\n", {"dialect": "millstream", "schema": "1", REPLAY: str(one.origin)})


def _kept(log: Log, partition: int, start: int | None) -> int:
    return max(start or 0, log.bounds(DEAD_LETTERS.name, partition)[0])
