"""The books of grades: each sealed revision was graded, and every grade it names is there."""

from __future__ import annotations

from typing import TypeAlias

import msgspec
from msgspec import Struct, field

from millstream.codec import digest
from millstream.console.audit_reading import GRADE
from millstream.console.audit_report import Books
from millstream.console.audit_sealed import Downstream, Revision
from millstream.grade import Grade
from millstream.ndjson import UNREADABLE, filled
from millstream.ports import Record
from millstream.rollout import Position
from millstream.topics import GRADES, TRAJECTORIES

_STATUS = {"Scored": "scored", "Failed": "failed", "Abstained": "abstained", "Censored": "censored"}


class Given(Struct, tag_field="kind", tag="GradeGiven"):
    """What the audit needs of a `millstream.grade.GradeGiven`."""

    id: str
    trajectory_id: str
    revision: int
    grader: str
    grade: Grade


class Finished(Struct, tag_field="kind", tag="GradingFinished"):
    """What the audit needs of a `millstream.rollout.GradingFinished`. ``at``: its own place."""

    trajectory_id: str
    revision: int
    content_hash: str
    position: Position
    grade_ids: tuple[str, ...] = ()
    partition: int = 0
    offset: int = 0
    log_ms: int = 0


class _Tick(Struct, tag_field="kind", tag="Tick"):
    pass


_Line: TypeAlias = Given | Finished | _Tick
_LINE = msgspec.json.Decoder(_Line)


class Graded(Struct):
    """Everything that grading has put out."""

    given: dict[str, Given] = field(default_factory=dict)
    finished: dict[tuple[str, int], Finished] = field(default_factory=dict)


def graded(books: Books, found: Downstream) -> Graded:
    """Read ``grades``; a grade id that is there twice must say the same."""
    made = Graded()
    for record in books.reading.records(GRADES.name):
        for index, line in enumerate(filled(record.value)):
            try:
                item = _LINE.decode(line)
            except UNREADABLE as error:
                if (GRADES.name, record.partition, record.offset, index) not in found.letters:
                    books.differ("unreadable", _at(record), f"neither a grade nor in the dead letters: {error}")
                continue
            if isinstance(item, Given):
                _give(books, made, item, record)
            elif isinstance(item, Finished):
                _finish(books, made, item, record)
    return made


def _give(books: Books, made: Graded, item: Given, record: Record) -> None:
    first = made.given.setdefault(item.id, item)
    if first is not item:
        books.add("grades", "repeated")
        if first != item:
            books.differ("doubled grade", item.id, f"says something else at {_at(record)} than where it came first")
    else:
        books.add("grades", _STATUS[type(item.grade).__name__])


def _finish(books: Books, made: Graded, item: Finished, record: Record) -> None:
    item.partition, item.offset, item.log_ms = record.partition, record.offset, record.log_ms
    key = (item.trajectory_id, item.revision)
    if key in made.finished:
        books.differ(
            "doubled grading", item.trajectory_id, f"revision {item.revision} was graded again at {_at(record)}"
        )
    made.finished.setdefault(key, item)


def fill(books: Books, found: Downstream, made: Graded) -> None:
    """Count every trajectory by what became of its grading, and name what is unexplained."""
    for name, sealed in found.sealed.items():
        for revision in sealed.revisions.values():
            _revision(books, found, made, name, revision)
        last = (name, sealed.last.number)
        books.add("trajectories", "graded" if last in made.finished else "not graded")
    for passed in found.feedback:
        read = passed.offset < books.reading.position(GRADE, TRAJECTORIES.name, passed.partition)
        if read and digest("feedback", passed.trajectory_id, passed.event_id) not in made.given:
            books.differ("lost feedback", passed.event_id, f"feedback for {passed.trajectory_id} never became a grade")
    if books.reading.whole(TRAJECTORIES.name):
        for (name, number), finished in made.finished.items():
            _origin(books, found, name, number, finished)


def _revision(books: Books, found: Downstream, made: Graded, name: str, revision: Revision) -> None:
    finished = made.finished.get((name, revision.number))
    where = f"{TRAJECTORIES.name}:{revision.partition} at {revision.offset}"
    if finished is None:
        read = revision.offset < books.reading.position(GRADE, TRAJECTORIES.name, revision.partition)
        excused = books.reading.lost(GRADE, TRAJECTORIES.name, revision.partition, revision.offset)
        letter = (TRAJECTORIES.name, revision.partition, revision.offset, -1) in found.letters
        if read and not excused and not letter:
            books.differ(
                "lost grading", name, f"revision {revision.number} ({where}) was read by grade, but not graded"
            )
        return
    if finished.content_hash != revision.content_hash:
        books.differ("wrong grading", name, f"revision {revision.number} was graded with another content ({where})")
    for grade_id in finished.grade_ids:
        given = made.given.get(grade_id)
        if given is None:
            books.differ(
                "lost grade", grade_id, f"GradingFinished of {name}:{revision.number} names it, grades has it not"
            )
        elif (given.trajectory_id, given.revision) != (name, revision.number):
            books.differ("wrong grade", grade_id, f"is of {given.trajectory_id}:{given.revision}, named by {name}")


def _origin(books: Books, found: Downstream, name: str, number: int, finished: Finished) -> None:
    revision = found.sealed[name].revisions.get(number) if name in found.sealed else None
    if revision is None:
        books.differ("invented grading", name, f"revision {number} was graded, but trajectories has it not")
    elif (revision.partition, revision.offset) != (finished.position.partition, finished.position.offset):
        books.differ("wrong position", name, f"GradingFinished of revision {number} cites another record")


def _at(record: Record) -> str:
    return f"{record.topic}:{record.partition} at {record.offset}"
