"""Promotion by hand: promote, roll back and retire, each one event with the champion it expects.

Checked before it is written (what is asked for exists) and after (nobody was faster): the ledger
ignores an event whose expected champion is not current, and the caller learns so by `Conflict`.
"""

from __future__ import annotations

from millstream.codec import digest
from millstream.errors import Conflict, SettingsError
from millstream.events import new_id
from millstream.ledger import LedgerReader, append_policy_events
from millstream.policy import AnyPolicyEvent, Lineage, PolicyPromoted, PolicyRetired, PolicyRolledBack, Version
from millstream.ports import Log


def promote(log: Log, lineage: str, version: int, reason: str, by: str = "hand") -> Version:
    """Make a version the champion. Raises `SettingsError` when there is no such version or it serves
    already, `Conflict` when the champion moved meanwhile.
    """
    found = _lineage(log, lineage)
    _known(found, version)
    if found.champion == version:
        raise SettingsError(f"version {version} of {lineage!r} is the champion already")
    event = PolicyPromoted(
        id=digest("promote", lineage, version, new_id()),
        lineage=lineage,
        version=version,
        expected_champion=found.champion,
        reason=reason,
        by=by,
    )
    return _write(log, lineage, version, event)


def rollback(log: Log, lineage: str, reason: str, to: int | None = None, by: str = "hand") -> Version:
    """Serve an earlier version again: ``to``, or the previous champion. Raises as `promote` does."""
    found = _lineage(log, lineage)
    version = found.previous if to is None else to
    if found.champion is None or version is None:
        raise SettingsError(f"lineage {lineage!r} has no earlier champion to go back to; name one with --to VERSION")
    _known(found, version)
    served = {number for _, number in found.history}
    if version == found.champion or version not in served:
        known = ", ".join(map(str, sorted(served - {found.champion}))) or "none"
        raise SettingsError(f"version {version} of {lineage!r} did not serve before; those that did: {known}")
    event = PolicyRolledBack(
        id=digest("rollback", lineage, version, new_id()),
        lineage=lineage,
        version=version,
        expected_champion=found.champion,
        reason=reason,
        by=by,
    )
    return _write(log, lineage, version, event)


def retire(log: Log, lineage: str, version: int, reason: str) -> Version:
    """Mark a version as never to serve again. Raises `SettingsError` for the champion."""
    found = _lineage(log, lineage)
    _known(found, version)
    if found.champion == version:
        raise SettingsError(f"version {version} of {lineage!r} serves; promote another or roll back first")
    event = PolicyRetired(
        id=digest("retire", lineage, version, new_id()), lineage=lineage, version=version, reason=reason
    )
    append_policy_events(log, [event])
    standing = LedgerReader(log).refresh().lineage(lineage).versions[version]
    if standing.stage != "retired":
        raise Conflict(f"version {version} of {lineage!r} became the champion meanwhile and was not retired")
    return standing


def _lineage(log: Log, name: str) -> Lineage:
    lineages = LedgerReader(log).refresh().lineages
    if name not in lineages:
        known = ", ".join(sorted(lineages)) or "none yet; set [policy] base and run `millstream up`"
        raise SettingsError(f"no lineage {name!r}; known: {known}")
    return lineages[name]


def _known(lineage: Lineage, version: int) -> Version:
    if version not in lineage.versions:
        known = ", ".join(map(str, sorted(lineage.versions))) or "none"
        raise SettingsError(f"lineage {lineage.name!r} has no version {version}; known: {known}")
    return lineage.versions[version]


def _write(log: Log, lineage: str, version: int, event: AnyPolicyEvent) -> Version:
    append_policy_events(log, [event])
    standing = LedgerReader(log).refresh().lineage(lineage)
    if standing.champion != version:
        raise Conflict(
            f"the champion of {lineage!r} moved to version {standing.champion} meanwhile; "
            "look at `millstream policies list` and decide again"
        )
    return standing.versions[version]
