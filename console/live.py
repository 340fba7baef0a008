"""``who-was-live``: which version of each lineage served at a moment, and by what decision."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from millstream.console.catalog import policy_events
from millstream.console.times import duration, iso
from millstream.policy import PolicyLedger, PolicyPromoted, PolicyRolledBack
from millstream.ports import Log


class Live(Struct, frozen=True, kw_only=True):
    """What served at ``at_ms``: since when, until when (None: still), by whose decision and why.
    ``version`` None: nothing served yet.
    """

    lineage: str
    at_ms: int
    version: int | None
    since_ms: int | None = None
    until_ms: int | None = None
    reason: str = ""
    by: str = ""


class Service(Struct, frozen=True, kw_only=True):
    """A stretch of time in which a version served."""

    lineage: str
    version: int
    since_ms: int
    until_ms: int | None
    reason: str
    by: str


def services(log: Log) -> list[Service]:
    """Every stretch in which a version served, lineage by lineage, oldest first."""
    ledger, changes = PolicyLedger(), list[tuple[PolicyPromoted | PolicyRolledBack, int]]()
    for event in policy_events(log):
        if ledger.apply(event) and isinstance(event, PolicyPromoted | PolicyRolledBack):
            changes.append((event, event.log_ms))
    found = []
    for name in ledger.lineages:
        own = [(event, ms) for event, ms in changes if event.lineage == name]
        ends: list[int | None] = [*(ms for _, ms in own[1:]), None]
        found += [
            Service(lineage=name, version=e.version, since_ms=ms, until_ms=end, reason=e.reason, by=e.by)
            for (e, ms), end in zip(own, ends, strict=True)
        ]
    return found


def who_was_live(log: Log, at_ms: int) -> list[Live]:
    """One line a lineage: the version that served at a log time. At the very millisecond of a change
    the new one serves.
    """
    found = {name: Live(lineage=name, at_ms=at_ms, version=None) for name in _names(log)}
    for service in services(log):
        if service.since_ms <= at_ms and (service.until_ms is None or at_ms < service.until_ms):
            found[service.lineage] = Live(
                lineage=service.lineage,
                at_ms=at_ms,
                version=service.version,
                since_ms=service.since_ms,
                until_ms=service.until_ms,
                reason=service.reason,
                by=service.by,
            )
    return list(found.values())


def _names(log: Log) -> list[str]:
    return list(dict.fromkeys(event.lineage for event in policy_events(log) if event.lineage))


def render(lines: Sequence[Live]) -> str:
    """The answer in words, one line a lineage."""
    if not lines:
        return "no lineage has a version yet"
    return "\n".join(_line(live) for live in lines)


def _line(live: Live) -> str:
    if live.version is None or live.since_ms is None:
        return f"{live.lineage}: nothing served at {iso(live.at_ms)}"
    until = "still" if live.until_ms is None else f"until {iso(live.until_ms)}"
    length = "" if live.until_ms is None else f", {duration(live.until_ms - live.since_ms)}"
    by = f", by {live.by}" if live.by else ""
    return f"{live.lineage}: version {live.version}, since {iso(live.since_ms)}, {until}{length} ({live.reason}{by})"
