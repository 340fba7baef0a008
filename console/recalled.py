"""What a recall would take back: a grader's grades, and everything that rests on them; or a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec import Struct

from millstream.console.catalog import grade_events, grades, trajectories
from millstream.console.impact import Impact, impact, impact_lines
from millstream.policy import PolicyLedger
from millstream.ports import Log
from millstream.recalls import Recall
from millstream.rollout import RolloutAdmitted


class RestsOn(Struct, frozen=True, kw_only=True):
    """``grades``: how many there are to take back, by epoch; ``impact``: what rests on them."""

    grades: dict[str, int]
    impact: Impact


def rests_on(log: Log, grader: str, epochs: Sequence[str], span: Recall, trajectory_id: str) -> RestsOn:
    """Follow a grader's grades in some epochs, known within a span, or one run."""
    if trajectory_id:
        return RestsOn(grades={}, impact=impact(log, lambda admitted: admitted.trajectory_id == trajectory_id))
    counts: Counter[str] = Counter()
    taken: set[str] = set()
    for given in grades(log):
        if given.grader == grader and given.epoch in epochs and span.holds_at(given.known_ms):
            counts[given.epoch] += 1
            taken.add(given.id)

    def rests(admitted: RolloutAdmitted) -> bool:
        return not taken.isdisjoint(admitted.grade_ids)

    return RestsOn(grades=dict(counts), impact=impact(log, rests))


def epochs_of(log: Log, grader: str) -> tuple[str, ...]:
    """The epochs in which a grader has graded, oldest first."""
    return tuple(dict.fromkeys(given.epoch for given in grades(log) if given.grader == grader))


def graders_in(log: Log) -> list[str]:
    """Every grader that has graded."""
    return sorted({given.grader for given in grades(log)})


def is_run(log: Log, trajectory_id: str) -> bool:
    """Whether a run was sealed or graded."""
    if any(row.id == trajectory_id for row in trajectories(log)):
        return True
    return any(event.trajectory_id == trajectory_id for event in grade_events(log))


def notes(ledger: PolicyLedger) -> list[str]:
    """What a person should know of recalls: graders whose runs are refused, champions that are quarantined."""
    standing = {
        (grader, epoch): f"{recall.reason}; `millstream recall --undo {recall.id}` lets it go"
        for grader, recalls in ledger.recalls.graders.items()
        for recall in recalls.values()
        for epoch in recall.epochs
        if not recall.until_ms
    }
    told = [
        f"grades of {epoch} are recalled ({reason}); their runs are refused until another epoch grades them; mend the "
        f"grader, start `millstream up` again, then `millstream regrade --grader {grader}`"
        for (grader, epoch), reason in standing.items()
    ]
    for lineage in ledger.lineages.values():
        champion = ledger.champion(lineage.name)
        if champion is not None and champion.quarantined:
            told.append(
                f"version {champion.version} of {lineage.name} serves and is quarantined ({champion.quarantined}): "
                f"`millstream rollback --lineage {lineage.name}` goes to the last champion that is not"
            )
    return told


def render(words: str, found: RestsOn, mends: Sequence[str], *, written: bool, stood: bool) -> str:
    """A recall as people read it: what it takes back, what rests on it, what would mend it."""
    told = "were recalled before" if stood else "recalled" if written else "would be recalled (nothing is written)"
    counts = ", ".join(f"{epoch} {count}" for epoch, count in sorted(found.grades.items()))
    head = f"{words}: {told}" + (f"; grades: {counts}" if counts else "")
    return "\n".join([head, *(f"  {line}" for line in impact_lines(found.impact)), *(f"  → {mend}" for mend in mends)])
