"""Recalling: the events that take evidence back, and the words for what would mend what rests on it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from millstream.codec import digest
from millstream.errors import SettingsError
from millstream.events import new_id
from millstream.policy import PolicyLedger
from millstream.recalls import EvidenceRecalled, Recall, RecallLifted


class Target(Struct, frozen=True, kw_only=True):
    """What is taken back: a grader's grades in ``epochs`` known at ``since_ms`` or later and before
    ``until_ms`` (0: whenever), or one run.
    """

    grader: str = ""
    epochs: tuple[str, ...] = ()
    since_ms: int = 0
    until_ms: int = 0
    trajectory_id: str = ""

    @property
    def words(self) -> str:
        """The target, for people."""
        return f"run {self.trajectory_id}" if self.trajectory_id else f"grades of {', '.join(self.epochs)}"

    def stands(self, ledger: PolicyLedger) -> bool:
        """Whether all of it was recalled before."""
        if self.trajectory_id:
            return ledger.recalls.takes(self.trajectory_id) is not None
        return all(self._covered(ledger, epoch) for epoch in self.epochs)

    def _covered(self, ledger: PolicyLedger, epoch: str) -> bool:
        """Whether one recall spans all of this one, for an epoch."""
        return any(
            epoch in old.epochs
            and old.since_ms <= self.since_ms
            and (not old.until_ms or (0 < self.until_ms <= old.until_ms))
            for old in ledger.recalls.graders.get(self.grader, {}).values()
        )

    @property
    def span(self) -> Recall:
        """The times it covers, as a recall."""
        return Recall(id="", since_ms=self.since_ms, until_ms=self.until_ms)


def recall_events(
    lineages: Iterable[str],
    target: Target,
    versions: Mapping[str, Sequence[int]],
    trainings: Mapping[str, Sequence[str]],
    reason: str,
    by: str = "hand",
) -> list[EvidenceRecalled]:
    """One event for each lineage; the first alone would take the evidence out of every buffer, the others
    mark their own versions and trainings.
    """
    recall_id = digest("recall", target.words, target.since_ms, target.until_ms, new_id())
    return [
        EvidenceRecalled(
            id=digest(recall_id, lineage),
            lineage=lineage,
            recall_id=recall_id,
            grader=target.grader,
            epochs=target.epochs,
            since_ms=target.since_ms,
            until_ms=target.until_ms,
            trajectory_id=target.trajectory_id,
            versions=tuple(versions.get(lineage, ())),
            trainings=tuple(trainings.get(lineage, ())),
            reason=reason or f"{target.words} recalled",
            by=by,
        )
        for lineage in lineages
    ]


def lift_events(
    ledger: PolicyLedger, lineages: Iterable[str], recall_id: str, reason: str, by: str = "hand"
) -> list[RecallLifted]:
    """The events that let a recall go, one for each lineage. Raises `SettingsError` naming those that stand."""
    standing = ledger.recalls.ids
    if recall_id not in standing:
        known = ", ".join(standing) or "none"
        raise SettingsError(f"no recall {recall_id!r} stands; those that do: {known}")
    return [
        RecallLifted(id=digest("lift", recall_id, lineage), lineage=lineage, recall_id=recall_id, reason=reason, by=by)
        for lineage in lineages
    ]


def mends(target: Target, champions: Mapping[str, tuple[int, int | None]], marked: Sequence[int]) -> list[str]:
    """What rolling back, regrading and rebuilding would mend, and how. ``champions``: serving versions that
    learned from the evidence, each with the newest clean one that served before; ``marked``: all versions.
    """
    told = []
    for lineage, (serving, clean) in champions.items():
        if clean is None:
            told.append(f"{lineage}: version {serving} serves and no clean version served before it")
        else:
            told.append(
                f"{lineage}: version {serving} serves; `millstream rollback --lineage {lineage} --to {clean}` serves "
                f"version {clean} again, which learned from none of it"
            )
    if target.grader:
        told.append(
            f"mend the grader, then `millstream regrade --grader {target.grader}`: the runs are graded by its new "
            "epoch and may enter the buffer again"
        )
    if marked:
        told.append(
            "the next training from a clean champion learns from what is left in the buffer (`millstream train`); "
            f"`millstream rebuild {marked[-1]}` makes version {marked[-1]} as it was, recalled evidence included"
        )
    return told
