"""The grade stage: each sealed trajectory gets its grades, then `GradingFinished` with its facts.

Graders are no pure functions, so this stage keeps no state that matters and is never fed again to restore:
grade ids are hashes of (trajectory id, revision, epoch, attempt), and the first offset of an id wins.

A run that telemetry or infrastructure cut short is **censored**: its grades say so and no grader runs. A run
that the policy drove into a limit is graded like any other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Final

import msgspec

from millstream.codec import digest
from millstream.errors import EventError
from millstream.events import FeedbackGiven
from millstream.grade import Censored, GradeGiven
from millstream.graders.feedback import EPOCH, grade_feedback, grader_name
from millstream.graders.numeric import flags_of
from millstream.graders.running import Given, GraderSet, effective
from millstream.ports import Output, Record
from millstream.rollout import GradingFinished, Position
from millstream.streams.dead_letters import Place, dead_letter
from millstream.streams.facts import facts_of
from millstream.streams.metering import LAST_EVENT
from millstream.topics import GRADES, TRAJECTORIES
from millstream.trajectory import Trajectory

NAME: Final = "grade"
HEADERS: Final = {"kind": "grades"}

_trajectory = msgspec.json.Decoder(Trajectory).decode
_feedback = msgspec.json.Decoder(FeedbackGiven).decode
_encode_lines = msgspec.json.Encoder().encode_lines


class GradingStage:
    """The processor ``grade``. ``topic_id`` is that of ``trajectories``: positions and dead letters cite it."""

    stateless: Final = True
    name: Final = NAME
    inputs: Final = (TRAJECTORIES.name,)

    def __init__(self, graders: GraderSet, *, topic_id: str = "") -> None:
        self._graders = graders
        self._topic_id = topic_id
        self._coming: dict[int, deque[Record]] = {}
        self._begun: dict[int, int] = {}
        self._foreseen: dict[tuple[int, int], tuple[Trajectory | None, list[list[Given]] | None]] = {}

    def expect(self, records: Sequence[Record]) -> None:
        """These come next, in this order: graders in a child process may be asked for several at once. A hint; what
        is fed counts.
        """
        for record in records:
            coming = self._coming.setdefault(record.partition, deque())
            if coming and record.offset <= coming[-1].offset:
                coming.clear()  # they are read again
            coming.append(record)

    def feed(self, record: Record) -> Sequence[Output]:
        """One trajectory or one piece of feedback: one record of ``grades``, or a dead letter."""
        if record.value is None:
            return ()
        try:
            if record.headers.get("kind") == "feedback":
                return [self._of_feedback(_feedback(record.value), record)]
            return [self._of_trajectory(*self._graded(record, record.value), record)]
        except (msgspec.MsgspecError, EventError, ValueError, ArithmeticError, RecursionError) as error:
            return [self._dead(record, str(error))]

    def deadline_ms(self) -> int | None:
        """No timers."""
        return None

    def snapshot(self) -> bytes:
        """No state."""
        return b""

    def restore(self, snapshot: bytes) -> None:
        """No state."""

    def _graded(self, record: Record, value: bytes) -> tuple[Trajectory, list[list[Given]]]:
        """A trajectory and every attempt at it."""
        place = record.partition, record.offset
        if place not in self._foreseen:
            self._foresee(record)
        t, theirs = self._foreseen.pop(place, (None, None))
        t = t or _trajectory(value)
        self._begin(record)
        return t, censored(t, self._graders) if t.censored else self._graders.grade(t, theirs)

    def _foresee(self, record: Record) -> None:
        """Ask the child process for this trajectory and those that come after it, as many as are worth it now."""
        self._foreseen.clear()
        coming = self._coming.get(record.partition, deque())
        while coming and coming[0].offset < record.offset:
            coming.popleft()
        if not coming or coming[0].offset != record.offset:
            return
        looked = [(one, _decoded(one)) for one in islice(coming, self._graders.ahead)]
        asked = [one.value or b"" for one, t in looked if t and not t.censored]
        rows = self._graders.foresee(asked) if len(asked) > 1 else None
        if rows is not None:
            given = iter(rows)
            for one, t in looked:
                self._foreseen[one.partition, one.offset] = t, next(given) if t and not t.censored else None

    def _begin(self, record: Record) -> None:
        """Let slow graders see the trajectories that come next, each once."""
        if self._graders.window < 2:
            return
        begun = self._begun.get(record.partition, -1)
        if begun >= record.offset + self._graders.window:
            begun = -1  # an earlier reading's mark
        coming = islice(self._coming.get(record.partition, ()), self._graders.window)
        fresh = [one for one in coming if one.offset > begun]
        if fresh:
            self._begun[record.partition] = fresh[-1].offset
            decoded = (_decoded(one) for one in fresh)
            self._graders.begin([t for t in decoded if t is not None and not t.censored])

    def _of_trajectory(self, t: Trajectory, attempts: list[list[Given]], record: Record) -> Output:
        given = [[given_of(t, one, record, record.log_ms) for one in made] for made in attempts]
        counted = [ids[made.index(effective(made))].id for made, ids in zip(attempts, given, strict=True)]
        finished = GradingFinished(
            trajectory_id=t.id,
            revision=t.revision,
            content_hash=t.content_hash,
            position=Position(self._topic_id, record.partition, record.offset),
            graders=self._graders.names,
            grade_ids=tuple(counted),
            facts=facts_of(t, len(record.value or b"")),
            known_ms=record.log_ms,
        )
        lines = [one for made in given for one in made]
        headers = dict(HEADERS)
        if t.reason == "complete" and t.evidence.sealed_ms:
            headers[LAST_EVENT] = str(t.evidence.sealed_ms)
        return Output(GRADES.name, t.id, _encode_lines([*lines, finished]), headers)

    def _of_feedback(self, event: FeedbackGiven, record: Record) -> Output:
        given = GradeGiven(
            id=digest("feedback", event.trajectory_id, event.id),
            trajectory_id=event.trajectory_id,
            revision=0,
            grader=grader_name(event),
            epoch=EPOCH,
            grade=grade_feedback(event),
            input_hash=event.id,
            valid_ms=event.valid_time_ns // 1_000_000 or record.log_ms,
            known_ms=record.log_ms,
            source=event.source,
        )
        return Output(GRADES.name, event.trajectory_id, _encode_lines([given]), dict(HEADERS))

    def _dead(self, record: Record, detail: str) -> Output:
        place = Place(record.offset, -1)
        raw = record.value or b""
        return dead_letter(
            NAME, record, place, raw, reason="undecodable", detail=detail, trajectory_id="", topic_id=self._topic_id
        )


def _decoded(record: Record) -> Trajectory | None:
    """The trajectory of a record, if it is one."""
    if record.value is None or record.headers.get("kind") == "feedback":
        return None
    try:
        return _trajectory(record.value)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None  # its turn will say so


def given_of(t: Trajectory, one: Given, record: Record, known_ms: int) -> GradeGiven:
    """The event of one attempt at the trajectory of ``record``, known since ``known_ms``."""
    return GradeGiven(
        id=grade_id(t, one.epoch, one.attempt),
        trajectory_id=t.id,
        revision=t.revision,
        grader=one.grader.name,
        epoch=one.epoch,
        grade=one.grade,
        attempt=one.attempt,
        input_hash=t.content_hash,
        latency_ns=one.latency_ns,
        valid_ms=record.log_ms,
        known_ms=known_ms,
        source=one.grader.source,
        cost=one.cost,
        flags=(*flags_of(one.grade), *one.flags),
        propensity=one.propensity,
    )


def grade_id(t: Trajectory, epoch: str, attempt: int = 1) -> str:
    """The id of a grade: a hash of what it was made from."""
    return digest(t.id, t.revision, epoch, attempt)


def attempts_of(graders: GraderSet, trajectories: Sequence[Trajectory]) -> list[list[list[Given]]]:
    """Every attempt by trajectory and grader; a censored run meets no grader."""
    graded = iter(graders.grade_each([t for t in trajectories if not t.censored]))
    return [censored(t, graders) if t.censored else next(graded) for t in trajectories]


def censored(t: Trajectory, graders: GraderSet) -> list[list[Given]]:
    """The grades of a run that telemetry or infrastructure cut short: each says so."""
    missing = f"; missing {', '.join(t.missing[:5])}" if t.missing else ""
    grade = Censored(reason=f"{t.status}: {t.reason}{missing}")
    return [[Given(grader, grade)] for grader in graders.graders]
