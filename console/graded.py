"""Every grade with its epoch, its two times, and whether it counts: what ``grades`` prints.

``as_of_ms`` asks for what was known at a log time; ``valid_at_ms`` for what held at a time, whenever it became
known. A regrade of an old run is valid since that was sealed and known since it was given.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from millstream.console.catalog import grade_events, ledger, plain
from millstream.grade import GradeGiven
from millstream.ports import Log
from millstream.recalls import Recalls
from millstream.rollout import GradingFinished
from millstream.streams.graded_runs import GradedRun, effective, is_feedback, newest


class Told(Struct, frozen=True):
    """One grade, and whether it is the one that counts for its run."""

    given: GradeGiven
    counts: bool


def told(log: Log, as_of_ms: int | None = None, valid_at_ms: int | None = None) -> list[Told]:
    """Every grade once, in order. A grade counts when its run's rewards may rest on it: of the highest
    revision, of the epoch that came last, the first attempt that did not fail, and not recalled.
    """
    events = list(grade_events(log, as_of_ms, valid_at_ms))
    counting = _counting(events, ledger(log, as_of_ms).recalls)
    return [Told(event, event.id in counting) for event in events if isinstance(event, GradeGiven)]


def _counting(events: list[GradeGiven | GradingFinished], recalls: Recalls) -> set[str]:
    runs: dict[str, GradedRun] = {}
    for event in events:
        run = runs.setdefault(event.trajectory_id, GradedRun(trajectory_id=event.trajectory_id))
        if isinstance(event, GradeGiven):
            run.add(event)
            if not is_feedback(event.grader):
                run.revision = max(run.revision, event.revision)
    return {
        identity for run in runs.values() if not recalls.takes(run.trajectory_id) for identity in _ids(run, recalls)
    }


def _ids(run: GradedRun, recalls: Recalls) -> list[str]:
    mine = [*run.grades.get(str(run.revision), {}).items(), *run.feedback.items()]
    found = []
    for name, given in mine:
        kept = [one for one in given if not recalls.covers(name, one.epoch, one.known_ms)]
        last = newest(kept) if is_feedback(name) else effective(kept)
        if last is not None and (is_feedback(name) or last.epoch == given[-1].epoch):
            found.append(last.id)
    return found


def grade_rows(log: Log, as_of_ms: int | None = None, valid_at_ms: int | None = None) -> list[dict[str, Any]]:
    """Grades flattened: kind, score and reason beside who graded what, and whether it counts."""
    rows = []
    for one in told(log, as_of_ms, valid_at_ms):
        row = plain(one.given)
        rows.append({**row, **row.pop("grade"), "counts": one.counts})
    return rows


def whole_grades(log: Log, as_of_ms: int | None = None, valid_at_ms: int | None = None) -> list[dict[str, Any]]:
    """Grades whole, with the fields that have their defaults, and whether each counts."""
    return [
        {**{name: plain(getattr(one.given, name)) for name in GradeGiven.__struct_fields__}, "counts": one.counts}
        for one in told(log, as_of_ms, valid_at_ms)
    ]
