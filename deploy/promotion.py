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


def promote(
    log: Log, lineage: str, version: int, reason: str, by: str = "hand", *, quarantined: bool = False
) -> Version:
    """Make a version the champion. Raises `SettingsError` when there is no such version, it serves already or
    is quarantined (unless ``quarantined``), `Conflict` when the champion moved meanwhile.
    """
    found = _lineage(log, lineage)
    _clean(found, _known(found, version), quarantined=quarantined)
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


def rollback(
    log: Log, lineage: str, reason: str, to: int | None = None, by: str = "hand", *, quarantined: bool = False
) -> Version:
    """Serve an earlier version again: ``to``, or the newest former champion that is not quarantined. Raises as
    `promote` does.
    """
    found = _lineage(log, lineage)
    version = _former(found) if to is None else to
    if found.champion is None or version is None:
        raise SettingsError(f"lineage {lineage!r} has no earlier champion to go back to; name one with --to VERSION")
    _clean(found, _known(found, version), quarantined=quarantined)
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


def _former(lineage: Lineage) -> int | None:
    """The previous champion, or, where that is quarantined, the newest before it that is not."""
    others = [number for _, number in lineage.history if number != lineage.champion]
    clean = [number for number in others if not lineage.versions[number].quarantined]
    return lineage.previous if lineage.previous in clean else next(iter(reversed(clean)), None)


def _clean(lineage: Lineage, version: Version, *, quarantined: bool) -> None:
    if version.quarantined and not quarantined:
        raise SettingsError(
            f"version {version.version} of {lineage.name!r} is quarantined: {version.quarantined}; "
            "`millstream why` shows what it learned from, --quarantined serves it all the same"
        )


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
