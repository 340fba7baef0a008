"""Deciding again: what a gate would have said, had its gold been measured by another epoch of the grader."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
from msgspec import Struct

from millstream.deploy.archive import GateArchive, unpack
from millstream.deploy.evaluation import Outcomes, TaskOutcome
from millstream.deploy.gate import Judgement, judge
from millstream.evidence import from_json
from millstream.grade import Grade
from millstream.policy import GateDecided, PolicyLedger, Verdict
from millstream.trajectory import Trajectory

_trajectory = msgspec.json.Decoder(Trajectory).decode


class Rejudged(Struct, frozen=True, kw_only=True):
    """A decision that rests on the grader. ``would``: the verdict under its new epoch, None when that can't
    be told (``reason`` says why); ``otherwise``: the two verdicts differ.
    """

    lineage: str
    version: int
    champion: int
    gold_epoch: str
    verdict: Verdict
    would: Verdict | None = None
    reason: str = ""

    @property
    def otherwise(self) -> bool:
        """Whether it would have been decided otherwise."""
        return self.would is not None and self.would != self.verdict


def rejudge_all(
    ledger: PolicyLedger, grader: str, epoch: str, kept: Callable[[str], bytes], gold: Callable[[Trajectory], Grade]
) -> Iterator[Rejudged]:
    """Every decision whose gold is ``grader`` in another epoch, made again. ``kept`` reads an archive (empty
    when it is gone), ``gold`` grades by the new epoch.
    """
    for decided in (one for each in ledger.gates.values() for one in each):
        evidence = from_json(decided.evidence)
        if evidence is None or evidence.gold != grader or evidence.gold_epoch == epoch:
            continue
        archive = unpack(kept(evidence.archive)) if evidence.archive else None
        found = _again(archive, epoch, gold) if archive else None
        told = found.reasons[0] if found and found.reasons else "the evaluation kept no runs that could be graded again"
        yield _rejudged(decided, evidence.gold_epoch, found.verdict if found else None, told)


def _rejudged(decided: GateDecided, epoch: str, would: Verdict | None, reason: str) -> Rejudged:
    return Rejudged(
        lineage=decided.lineage,
        version=decided.version,
        champion=decided.expected_champion,
        gold_epoch=epoch,
        verdict=decided.verdict,
        would=would,
        reason=reason,
    )


def _again(archive: GateArchive, epoch: str, gold: Callable[[Trajectory], Grade]) -> Judgement | None:
    if not all(outcome.run for outcome in (*archive.champion, *archive.candidate)):
        return None
    champion, candidate = (_regraded(side, epoch, gold) for side in (archive.champion, archive.candidate))
    return judge(champion, candidate, archive.settings, archive.context)


def _regraded(outcomes: Outcomes, epoch: str, gold: Callable[[Trajectory], Grade]) -> list[TaskOutcome]:
    return [
        msgspec.structs.replace(outcome, gold=gold(_trajectory(outcome.run)), gold_epoch=epoch) for outcome in outcomes
    ]
