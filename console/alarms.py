"""Alarms as people see them, from the log: what was raised, whether it stands, and who cleared it why."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from millstream.console.catalog import ledger, plain
from millstream.grader_events import AlarmKind, AlarmRaised, GraderBook
from millstream.ports import Log


class AlarmRow(Struct, frozen=True, kw_only=True):
    """A line of ``alarms list``. ``state``: standing, or cleared."""

    id: str
    lineage: str
    alarm: AlarmKind
    measure: str
    version: int | None
    runs: int
    hits: int
    share: float
    expected: float
    state: str
    log_ms: int


def alarms(log: Log, as_of_ms: int | None = None) -> list[AlarmRow]:
    """Every alarm, oldest first."""
    book = ledger(log, as_of_ms).graders
    return [_row(alarm, book) for alarm in book.alarms.values()]


def whole_alarms(log: Log, as_of_ms: int | None = None) -> list[dict[str, Any]]:
    """Every alarm with its reason, its runs, and what cleared it."""
    book = ledger(log, as_of_ms).graders
    return [
        {
            **plain(alarm),
            "stops": alarm.stops,
            "trajectory_ids": list(alarm.trajectory_ids),
            "cleared": plain(book.cleared[alarm.id]) if alarm.id in book.cleared else None,
        }
        for alarm in book.alarms.values()
    ]


def _row(alarm: AlarmRaised, book: GraderBook) -> AlarmRow:
    return AlarmRow(
        id=alarm.id,
        lineage=alarm.lineage,
        alarm=alarm.alarm,
        measure=alarm.measure,
        version=alarm.version,
        runs=alarm.runs,
        hits=alarm.hits,
        share=alarm.share,
        expected=alarm.expected,
        state="cleared" if alarm.id in book.cleared else "standing",
        log_ms=alarm.log_ms,
    )


def notes(book: GraderBook) -> list[str]:
    """What `status` says of graders: alarms that stand, graders that pay for attacks."""
    told = [
        f"{alarm.alarm} alarm {alarm.id} ({alarm.lineage}): {alarm.reason}"
        + ("; training on this reward is stopped" if alarm.stops else "")
        for alarm in book.alarms.values()
        if alarm.id not in book.cleared
    ]
    weak = [found for found in book.examined.values() if found.verdict == "weak"]
    return told + [f"grader {found.epoch} is weak: {found.reason}; it cannot gate" for found in weak]
