"""Second tries: what a judge that was away could not grade is graded when it is back.

A worker beside the stages. It follows ``grades`` and keeps the runs whose standing grade by a grader that asks
something outside failed by ``infrastructure`` or ``timeout``. When it is time it tries one of them; when that gets
a grade the others follow, else it waits twice as long. What it gives are further attempts of the same epoch, appended
as a regrade appends them, so the reward and the buffer follow, and nothing is written over. Its state is a fold of
the log: begun again, it knows what is still missing.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager
from typing import Final

import msgspec
from msgspec import Struct

from millstream.errors import MillstreamError, SettingsError
from millstream.graders.epochs import base_epoch
from millstream.graders.running import GraderSet
from millstream.ledger import next_batch
from millstream.ndjson import UNREADABLE, filled
from millstream.ports import Log, Record
from millstream.streams.regrading import Regrading, Wanted
from millstream.topics import GRADES

AWAY: Final = frozenset({"infrastructure", "timeout"})
"""The kinds of failure that may have been somebody's who was away."""
LONGEST_MS: Final = 3_600_000
MOST_TRIES: Final = 8
"""A run that failed so often is the trouble itself; `millstream regrade` tries it again."""
TOGETHER: Final = 64
"""How many runs are graded between two looks at whether the grader is away again."""
BATCH_BYTES: Final = 256 << 10
LEAVE_S: Final = 2.0

Open = Callable[[str], AbstractContextManager[GraderSet]]
"""The grader of that name, alone on this data while it is open. Raises `SettingsError` while somebody regrades."""
logger = logging.getLogger(__name__)


class _Answer(Struct):
    status: str
    kind: str = ""


class _Given(Struct, tag_field="kind", tag="GradeGiven"):
    trajectory_id: str
    revision: int
    grader: str
    epoch: str
    grade: _Answer
    attempt: int = 1


class _At(Struct):
    partition: int
    offset: int


class _Finished(Struct, tag_field="kind", tag="GradingFinished"):
    trajectory_id: str
    revision: int
    position: _At


class _Tick(Struct, tag_field="kind", tag="Tick"):
    pass


_LINES = msgspec.json.Decoder(_Given | _Finished | _Tick)


class Missed(Struct):
    """A run without a grade: which revision, after how many attempts of the epoch, and where it lies."""

    trajectory_id: str
    revision: int
    attempts: int
    place: _At | None = None

    @property
    def wanted(self) -> Wanted:
        """As a regrade takes it."""
        assert self.place is not None
        return Wanted(self.trajectory_id, self.revision, self.place.partition, self.place.offset, self.attempts)


class _Wait(Struct):
    """When a grader is tried next (log time), and how long it waits after that."""

    next_ms: int
    pause_ms: int


class SecondTries:
    """``epochs``: the graders that ask something outside, with the epoch that is running: what another one could not
    grade is left to `millstream regrade`. ``retry_s``: how long after a failure the first try is.
    """

    def __init__(self, log: Log, epochs: Mapping[str, str], graders: Open, retry_s: float) -> None:
        self._log, self._open = log, graders
        self._epochs = {name: base_epoch(epoch) for name, epoch in epochs.items()}
        self._pause_ms = int(retry_s * 1000)
        self._offsets: dict[int, int] = {}
        self._missed: dict[str, dict[str, Missed]] = {name: {} for name in self._epochs}
        self._waits: dict[str, _Wait] = {}
        self._stop = threading.Event()
        self._job: tuple[str, Future[bool]] | None = None

    @property
    def busy(self) -> bool:
        """Whether runs are being graded again."""
        return self._job is not None

    @property
    def missing(self) -> dict[str, int]:
        """How many grades of each grader are missing, as far as the log was read."""
        return {name: len(runs) for name, runs in self._missed.items()}

    def close(self) -> None:
        """Begin nothing more. A question that is under way is waited for `LEAVE_S`; its answer would be asked for
        again.
        """
        self._stop.set()
        if self._job is not None:
            wait([self._job[1]], LEAVE_S)

    def step(self) -> bool:
        """Read what is new, else begin or end a try; whether anything happened. Raises `Unavailable`."""
        if self._job is not None and self._job[1].done():
            name, job = self._job
            self._job = None
            self._ended(name, job)
            return True
        if self._read():
            return True
        if self._job is None and (due := self._due()) is not None:
            name, runs = due
            self._job = name, self._begun(name, runs)
            return True
        return False

    def _due(self) -> tuple[str, list[Missed]] | None:
        """The grader that is tried now, with its runs: those tried least first."""
        now_ms = self._log.now_ms()
        for name in sorted(self._epochs):
            pause = self._waits.get(name)
            runs = [one for one in self._missed[name].values() if one.place and one.attempts < MOST_TRIES]
            if pause is not None and runs and pause.next_ms <= now_ms:
                return name, sorted(runs, key=lambda one: one.attempts)
        return None

    def _begun(self, name: str, runs: Sequence[Missed]) -> Future[bool]:
        """The work in a thread that keeps no process from ending."""
        job: Future[bool] = Future()

        def work() -> None:
            try:
                job.set_result(self._again(name, runs))
            except BaseException as error:  # noqa: BLE001 — raised where the result is asked for
                job.set_exception(error)

        threading.Thread(target=work, name="second-tries", daemon=True).start()
        return job

    def _again(self, name: str, runs: Sequence[Missed]) -> bool:
        """Try one, then the others; whether the grader graded to the end."""
        with self._open(name) as graders:
            if base_epoch(graders.graders[0].epoch) != self._epochs[name]:
                return False  # its file was changed since this process began
            mine = [one.wanted for one in runs]
            size, at = 1, 0
            while at < len(mine) and not self._stop.is_set():
                some = sorted(mine[at : at + size], key=lambda one: (one.partition, one.offset))
                report = Regrading(self._log, graders, wanted=some).append()
                if any(report.grades.failed_kinds.get(kind) for kind in AWAY):
                    return False
                at, size = at + size, TOGETHER
        return True

    def _ended(self, name: str, job: Future[bool]) -> None:
        """Wait for the next time: anew when all went well, else twice as long."""
        pause_ms = self._waits[name].pause_ms
        try:
            well = job.result()
        except SettingsError as error:  # somebody regrades by hand
            logger.info("%s is not tried again now: %s", name, error)
            well = False
        except MillstreamError as error:
            logger.warning("%s could not be tried again: %s", name, error)
            well = False
        if well:
            self._waits[name] = _Wait(self._log.now_ms() + self._pause_ms, self._pause_ms)
        else:
            pause_ms = min(LONGEST_MS, 2 * pause_ms)
            self._waits[name] = _Wait(self._log.now_ms() + pause_ms, pause_ms)

    def _read(self) -> bool:
        """Fold the next records in; whether there were any."""
        found = next_batch(self._log, GRADES.name, self._offsets, BATCH_BYTES)
        if found is None:
            return False
        partition, records = found
        self._offsets[partition] = records[-1].offset + 1
        for record in records:
            self._fold(record)
        return True

    def _fold(self, record: Record) -> None:
        value = record.value or b""
        if b'"failed"' not in value and not any(record.key in runs for runs in self._missed.values()):
            return
        for line in _lines(value):
            if isinstance(line, _Finished):
                for runs in self._missed.values():
                    one = runs.get(line.trajectory_id)
                    if one is not None and one.revision == line.revision:
                        one.place = line.position
            elif isinstance(line, _Given) and line.grader in self._epochs:
                self._note(line, record.log_ms)

    def _note(self, given: _Given, log_ms: int) -> None:
        runs = self._missed[given.grader]
        known = runs.get(given.trajectory_id)
        if known is not None and given.revision < known.revision:
            return
        away = given.grade.status == "failed" and given.grade.kind in AWAY
        if not away or base_epoch(given.epoch) != self._epochs[given.grader]:
            runs.pop(given.trajectory_id, None)
            return
        if not runs:
            self._waits[given.grader] = _Wait(log_ms + self._pause_ms, self._pause_ms)
        if known is not None and given.revision == known.revision:
            known.attempts = max(known.attempts, given.attempt)
        else:
            runs[given.trajectory_id] = Missed(given.trajectory_id, given.revision, given.attempt)


def _lines(value: bytes) -> Iterator[_Given | _Finished | _Tick]:
    """The lines that can be read; the buffering stage has made dead letters of the others."""
    for line in filled(value):
        try:
            yield _LINES.decode(line)
        except UNREADABLE:
            continue
