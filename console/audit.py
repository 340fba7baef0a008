"""``millstream audit``: do the books add up? Counted from the log, apart from what the stages count.

Nothing lost (each event of telemetry is somewhere, each trajectory graded, each graded one decided),
nothing doubled (no id twice), nothing invented (whatever is downstream is upstream), and no failed grade
became a reward. It may run beside a running `up`: what the stages have not read yet is said to be so.
"""

from __future__ import annotations

from millstream.console import audit_grades
from millstream.console.audit_events import EventBooks
from millstream.console.audit_reading import Reading, lag
from millstream.console.audit_report import AuditReport, Books
from millstream.console.audit_rollouts import RolloutBooks
from millstream.console.audit_sealed import downstream
from millstream.partition import unslot
from millstream.ports import Log, Store
from millstream.settings import Settings


def audit(log: Log, store: Store, settings: Settings, *, wait_s: float = 0.0) -> AuditReport:
    """Fix a cut and do the books. ``wait_s``: how long to wait for the stages to read up to it; after
    that the report says that they have not caught up.
    """
    behind = lag(log, store, wait_s)
    reading = Reading.take(log, store)
    books = Books(reading=reading)
    found = downstream(books)
    EventBooks(books, found, settings.assembly).fill()
    books.add("trajectories", "sealed", len(found.sealed))
    made = audit_grades.graded(books, found)
    audit_grades.fill(books, found, made)
    RolloutBooks(books, made, settings.buffer).fill()
    _holes(books)
    return AuditReport(
        balanced=not books.differences,
        caught_up=not behind,
        cut=reading.end,
        lag=behind,
        lines=tuple(books.lines()),
        differences=tuple(books.differences),
        gaps=reading.gaps,
    )


def _holes(books: Books) -> None:
    """Records that can't be read are a difference until their loss was accepted."""
    for hole in books.reading.holes.values():
        topic, partition = unslot(hole.place)
        accepted = any(
            (gap.topic, gap.partition) == (topic, partition) and gap.first <= hole.first and hole.end <= gap.end
            for gap in books.reading.gaps
        )
        if not accepted:
            books.differ("unreadable records", f"{hole.place} {hole.first} to {hole.end - 1}", hole.why)
