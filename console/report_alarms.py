"""The report's section on alarms: what was raised while the stream ran, when, and by which runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from millstream.console.markup import Child, Markup, join, tag
from millstream.console.report_data import ReportAlarm
from millstream.console.report_parts import percent, table
from millstream.console.times import iso
from millstream.grader_events import AlarmRaised, GraderBook

SHOWN = 3
"""How many of an alarm's runs are named on the page."""
HEAD = ("alarm", "raised at", "about", "share", "at most expected", "training", "the newest runs that raised it")


def of_book(book: GraderBook) -> tuple[ReportAlarm, ...]:
    """Every alarm of a ledger, in the order in which they were raised."""
    ordered = sorted(book.alarms.values(), key=lambda alarm: (alarm.log_ms, alarm.id))
    return tuple(_of(alarm, "cleared" if alarm.id in book.cleared else "standing") for alarm in ordered)


def _of(alarm: AlarmRaised, state: str) -> ReportAlarm:
    return ReportAlarm(
        id=alarm.id,
        log_ms=alarm.log_ms,
        lineage=alarm.lineage,
        alarm=alarm.alarm,
        version=alarm.version,
        reason=alarm.reason,
        runs=alarm.runs,
        hits=alarm.hits,
        share=alarm.share,
        expected=alarm.expected,
        stops=alarm.stops,
        state=state,
        trajectory_ids=alarm.trajectory_ids,
    )


def alarms(found: Sequence[ReportAlarm]) -> Markup:
    """Each alarm with its reason, and the same as a table."""
    told = tag(
        "p",
        "The stream bets against each reward while runs come in, and says so when it is being fooled: at most one "
        "version in a hundred gets a false alarm of a kind.",
    )
    if not found:
        return join(told, tag("p", "None was raised."))
    return join(
        told,
        tag("ul", [tag("li", f"{_whose(one)}: {one.reason}.") for one in found], class_="reasons"),
        table("What was raised", HEAD, [_row(one) for one in found], numbers=(3, 4)),
    )


def _whose(alarm: ReportAlarm) -> str:
    return alarm.lineage if alarm.version is None else f"{alarm.lineage}, version {alarm.version}"


def _row(alarm: ReportAlarm) -> list[Child]:
    stopped = "was stopped until it was cleared" if alarm.state == "cleared" else "is stopped"
    return [
        alarm.alarm,
        iso(alarm.log_ms),
        _whose(alarm),
        f"{percent(alarm.share)} ({alarm.hits} of {alarm.runs})",
        percent(alarm.expected),
        stopped if alarm.stops else "goes on",
        _runs(reversed(alarm.trajectory_ids[-SHOWN:]), len(alarm.trajectory_ids)),
    ]


def _runs(ids: Iterable[str], kept: int) -> Markup:
    named: list[Child] = []
    for run in ids:
        named += [tag("code", run[:16]), " "]
    more = f"and {kept - SHOWN} more: `millstream alarms show`" if kept > SHOWN else ""
    return join(*named, more)
