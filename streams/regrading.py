"""Regrading: new grades beside the old ones, for every run whose standing grade is not of the grader's
epoch, or failed.

The log is the only state. What has been done follows from ``grades``, so a regrade that was interrupted
goes on where it stopped, and one that is whole does nothing when it is started again. A new grade has a
new id, since that is a hash of (trajectory, revision, epoch, attempt); nothing is ever written over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import msgspec
from msgspec import Struct, field

from millstream.errors import SettingsError
from millstream.grade import GradeGiven, Tally
from millstream.graders.epochs import base_epoch
from millstream.graders.registry import Grader
from millstream.graders.running import Given, GraderSet, effective
from millstream.ledger import read_all
from millstream.ndjson import UNREADABLE, filled
from millstream.partition import partition_of
from millstream.ports import Log, Message, Record
from millstream.recalls import Recalls
from millstream.streams.grading import HEADERS, attempts_of, given_of
from millstream.topics import GRADES, TRAJECTORIES
from millstream.trajectory import Trajectory

MOST = 256
"""Trajectories graded in one call at most; fewer where they take more than about a second."""
APPEND_BYTES = 512_000
"""Appended in one go at most."""
APPEND_S = 1.0
"""Seconds after which grades are appended, however few: what an interruption costs of a slow grader's work."""

Progress = Callable[[int, int], None]
"""Called with how many runs are done, and of how many."""


class Wanted(Struct, gc=False):
    """One run to grade again: its record, and the attempts of this epoch that were made before."""

    trajectory_id: str
    revision: int
    partition: int
    offset: int
    attempts: int = 0


class Regraded(Struct, kw_only=True):
    """What a regrade did. ``runs``: graded runs that were looked at; ``standing``: those whose grade is of
    this epoch already; ``unreadable``: records of ``trajectories`` that could not be read.
    """

    grader: str
    epoch: str
    runs: int = 0
    standing: int = 0
    regraded: int = 0
    unreadable: int = 0
    grades: Tally = field(default_factory=Tally)


class _Given(Struct, tag_field="kind", tag="GradeGiven"):
    id: str
    trajectory_id: str
    revision: int
    grader: str
    epoch: str
    grade: _Status
    attempt: int = 1
    known_ms: int = 0


class _Status(Struct):
    status: str


class _At(Struct):
    partition: int
    offset: int


class _Finished(Struct, tag_field="kind", tag="GradingFinished"):
    trajectory_id: str
    revision: int
    position: _At
    known_ms: int = 0


class _Tick(Struct, tag_field="kind", tag="Tick"):
    pass


_LINE = msgspec.json.Decoder(_Given | _Finished | _Tick)
_trajectory = msgspec.json.Decoder(Trajectory).decode
_encode_lines = msgspec.json.Encoder().encode_lines


class _Known(Struct):
    """What ``grades`` holds of one run: its highest graded revision and this grader's grades of that."""

    revision: int = 0
    finished: _Finished | None = None
    epoch: str = ""
    stands: bool = False
    attempts: int = 0
    ids: set[str] = field(default_factory=set)


class Regrading:
    """One regrade: ``graders`` holds the one grader, ``since_ms`` leaves out runs sealed before. ``wanted``: just
    these, which whoever asks has seen.
    """

    def __init__(
        self,
        log: Log,
        graders: GraderSet,
        *,
        since_ms: int = 0,
        recalls: Recalls | None = None,
        wanted: Sequence[Wanted] | None = None,
    ) -> None:
        if len(graders.graders) != 1:
            raise SettingsError(f"a regrade is of one grader, not of {len(graders.graders)}")
        self.log = log
        self.graders = graders
        self.grader: Grader = graders.graders[0]
        self.since_ms = since_ms
        self.recalls = recalls or Recalls()
        self.report = Regraded(grader=self.grader.name, epoch=self.grader.epoch)
        self.wanted = self._plan() if wanted is None else list(wanted)

    def _plan(self) -> list[Wanted]:
        """The runs to grade, in the order in which their records lie."""
        known: dict[str, _Known] = {}
        for partition in range(self.log.partitions(GRADES.name)):
            for record in read_all(self.log, GRADES.name, partition):
                for line in _lines(record):
                    self._note(known, line)
        mine = [one for one in known.values() if one.finished and one.finished.known_ms >= self.since_ms]
        self.report.runs = len(mine)
        wanted = [_wanted(one, one.finished) for one in mine if one.finished and not self._done(one)]
        self.report.standing = len(mine) - len(wanted)
        return sorted(wanted, key=lambda one: (one.partition, one.offset))

    def _note(self, known: dict[str, _Known], line: _Given | _Finished) -> None:
        if isinstance(line, _Given) and line.grader != self.grader.name:
            return
        one = known.setdefault(line.trajectory_id, _Known())
        if line.revision < one.revision:
            return
        if line.revision > one.revision:
            known[line.trajectory_id] = one = _Known(revision=line.revision)
        if isinstance(line, _Finished):
            one.finished = line
            return
        if line.id in one.ids:
            return
        one.ids.add(line.id)
        epoch = base_epoch(line.epoch)
        if epoch != one.epoch:
            one.epoch, one.stands = epoch, False
        failed = line.grade.status == "failed" or self.recalls.covers(line.grader, line.epoch, line.known_ms)
        one.stands = one.stands or not failed
        if epoch == base_epoch(self.grader.epoch):
            one.attempts = max(one.attempts, line.attempt)

    def _done(self, one: _Known) -> bool:
        return one.stands and one.epoch == base_epoch(self.grader.epoch)

    def grades(self) -> Iterator[list[tuple[Trajectory, list[GradeGiven]]]]:
        """Every wanted run with its new grades, some at a time; nothing is written."""
        records, size = self._records(), 8
        while batch := list(islice(records, size)):
            begun = time.monotonic()
            attempts = attempts_of(self.graders, [t for _, _, t in batch])
            now_ms = self.log.now_ms()
            yield [self._given(*one, row[0], now_ms) for one, row in zip(batch, attempts, strict=True)]
            size = max(1, min(MOST, int(len(batch) / max(time.monotonic() - begun, 1e-3))))

    def _given(
        self, wanted: Wanted, record: Record, t: Trajectory, made: Sequence[Given], now_ms: int
    ) -> tuple[Trajectory, list[GradeGiven]]:
        """The events of a run's new attempts, which count on from those that were made before."""
        self.report.grades.add(effective(made).grade)
        self.report.regraded += 1
        counted = [msgspec.structs.replace(one, attempt=one.attempt + wanted.attempts) for one in made]
        return t, [given_of(t, one, record, now_ms) for one in counted]

    def append(self, progress: Progress = lambda *_: None) -> Regraded:
        """Grade and append; what was done. Interrupted, it has appended whole runs."""
        waiting: list[Message] = []
        size, since = 0, time.monotonic()
        for batch in self.grades():
            for t, given in batch:
                value = _encode_lines(given)
                waiting.append(Message(t.id, value, dict(HEADERS)))
                size += len(value)
            if size >= APPEND_BYTES or time.monotonic() - since >= APPEND_S:
                self._write(waiting)
                waiting, size, since = [], 0, time.monotonic()
                progress(self.report.regraded, len(self.wanted))
        self._write(waiting)
        progress(self.report.regraded, len(self.wanted))
        return self.report

    def _write(self, messages: Sequence[Message]) -> None:
        partitions = self.log.partitions(GRADES.name)
        by_partition: dict[int, list[Message]] = {}
        for message in messages:
            by_partition.setdefault(partition_of(message.key, partitions), []).append(message)
        for partition, mine in by_partition.items():
            self.log.append(GRADES.name, mine, partition)

    def _records(self) -> Iterator[tuple[Wanted, Record, Trajectory]]:
        for partition in range(self.log.partitions(TRAJECTORIES.name)):
            mine = {one.offset: one for one in self.wanted if one.partition == partition}
            if not mine:
                continue
            for record in read_all(self.log, TRAJECTORIES.name, partition, min(mine)):
                one = mine.get(record.offset)
                if one is None or record.value is None:
                    continue
                try:
                    yield one, record, _trajectory(record.value)
                except UNREADABLE:
                    self.report.unreadable += 1


def _wanted(one: _Known, finished: _Finished) -> Wanted:
    at = finished.position
    return Wanted(finished.trajectory_id, one.revision, at.partition, at.offset, one.attempts)


def _lines(record: Record) -> Iterator[_Given | _Finished]:
    if record.headers.get("kind", "grades") != "grades" or record.value is None:
        return
    try:
        found = _LINE.decode_lines(record.value)
    except UNREADABLE:
        found = list(_each(record.value))
    yield from (line for line in found if not isinstance(line, _Tick))


def _each(value: bytes) -> Iterator[_Given | _Finished | _Tick]:
    """The lines that can be read; the buffering stage has made dead letters of the others."""
    for line in filled(value):
        try:
            yield _LINE.decode(line)
        except UNREADABLE:
            continue
