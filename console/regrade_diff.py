"""``regrade --diff``: what a regrade would change, before anything moves.

The grader runs, but nothing is appended: its new grades are folded beside the old ones, and what differs
is followed to rewards, rollouts in the buffer, and the versions that were trained on them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

from msgspec import Struct

from millstream.console.catalog import grade_events, ledger
from millstream.console.impact import Impact, impact, impact_lines
from millstream.grade import Failed, Grade, GradeGiven, Scored
from millstream.graders.reward import Formula
from millstream.ports import Log
from millstream.recalls import Recalls
from millstream.settings import RewardSettings
from millstream.streams.rewards import RewardBook, RunReward


class RewardChange(Struct, frozen=True, kw_only=True):
    """One run whose reward would be another. ``flips``: success becomes failure, a reward comes or goes."""

    trajectory_id: str
    lineage: str
    policy_version: int | None
    old: float | None
    new: float | None
    why: str
    flips: bool


class LineageDiff(Struct, frozen=True, kw_only=True):
    """What a regrade would do to the rewards of one formula. ``graded``: runs that have or had a reward
    before or after; ``named``: whether the formula names the grader at all (else nothing changes).
    """

    lineage: str
    namespace: str
    formula: str
    named: bool
    graded: int
    changed: int
    flips: int
    came: int
    went: int
    mean_before: float | None
    mean_after: float | None
    changes: tuple[RewardChange, ...]


class RegradeDiff(Struct, frozen=True, kw_only=True):
    """The whole answer. ``replaces``: how many runs by the epoch of their standing grade; ``grades``: what
    becomes of each run's grade; ``impact``: what rests on runs whose reward would change.
    """

    grader: str
    epoch: str
    replaces: dict[str, int]
    runs: int
    grades: dict[str, int]
    lineages: tuple[LineageDiff, ...]
    impact: Impact


class Plain(Struct, frozen=True):
    """What a diff needs to know of a lineage: its name, the buffer's namespace and its reward."""

    lineage: str
    namespace: str
    reward: RewardSettings


def diff(
    log: Log, grader: str, epoch: str, new: Iterable[Sequence[GradeGiven]], lineages: Sequence[Plain], recalls: Recalls
) -> RegradeDiff:
    """What the grades ``new`` (those of one run together) would change."""
    given = {attempts[0].trajectory_id: list(attempts) for attempts in new if attempts}
    books = [RewardBook(Formula.of(plain.reward), recalls, also=grader) for plain in lineages]
    replaces: Counter[str] = Counter()
    for event in grade_events(log):
        for book in books:
            book.take([event])
    before = [{name: book.reward(name) for name in given if name in book.runs} for book in books]
    old = {name: books[0].grade(name, grader) for name in given}
    for name in given:
        kept = books[0].runs[name].grades.get(str(books[0].runs[name].revision), {}).get(grader, ())
        replaces[kept[-1].epoch if kept else "none"] += 1
    for book in books:
        book.take([one for attempts in given.values() for one in attempts])
    told = Counter(_told(old[name], books[0].grade(name, grader)) for name in given)
    foreign = ledger(log).lineages.keys() - {plain.lineage for plain in lineages}
    parts = [
        _part(plain, grader, book, [run for run in was.values() if _is_of(run, plain, foreign, len(lineages))])
        for plain, book, was in zip(lineages, books, before, strict=True)
    ]
    changed = {(part.namespace, change.trajectory_id) for part in parts for change in part.changes}
    return RegradeDiff(
        grader=grader,
        epoch=epoch,
        replaces=dict(replaces),
        runs=len(given),
        grades=dict(told.most_common()),
        lineages=tuple(parts),
        impact=impact(log, lambda admitted: (admitted.namespace, admitted.trajectory_id) in changed),
    )


def _told(old: Grade | None, new: Grade | None) -> str:
    if isinstance(old, Scored) and isinstance(new, Scored):
        return "the same score" if old.score == new.score else ("raised" if new.score > old.score else "lowered")
    before, after = _kind(old), _kind(new)
    return f"{before} as before" if before == after else f"{before} → {after}"


def _kind(grade: Grade | None) -> str:
    if grade is None:
        return "no grade"
    return f"failed ({grade.kind})" if isinstance(grade, Failed) else type(grade).__name__.lower()


def _is_of(run: RunReward, plain: Plain, foreign: AbstractSet[str], lineages: int) -> bool:
    """Whether a run may count for a lineage: its own, of none, or, where there is one lineage, of any that
    has no policies.
    """
    theirs = run.facts.lineage
    return theirs in ("", plain.lineage) or (lineages == 1 and theirs not in foreign)


def _part(plain: Plain, grader: str, book: RewardBook, before: Sequence[RunReward]) -> LineageDiff:
    pairs = [(was, book.reward(was.trajectory_id)) for was in before]
    formula = book.named.formula
    changes = [_change(was, now, formula) for was, now in pairs if was.reward != now.reward]
    return LineageDiff(
        lineage=plain.lineage,
        namespace=plain.namespace,
        formula=plain.reward.formula,
        named=grader in book.named.names,
        graded=sum(was.reward is not None or now.reward is not None for was, now in pairs),
        changed=len(changes),
        flips=sum(change.flips for change in changes),
        came=sum(change.old is None for change in changes),
        went=sum(change.new is None for change in changes),
        mean_before=_mean([was.reward for was, _ in pairs]),
        mean_after=_mean([now.reward for _, now in pairs]),
        changes=tuple(changes),
    )


def _change(was: RunReward, now: RunReward, formula: Formula) -> RewardChange:
    known = was.reward is not None and now.reward is not None
    flips = not known or formula.succeeds(was.reward or 0.0) != formula.succeeds(now.reward or 0.0)
    return RewardChange(
        trajectory_id=was.trajectory_id,
        lineage=was.facts.lineage,
        policy_version=was.facts.policy_version,
        old=was.reward,
        new=now.reward,
        why=now.why,
        flips=flips,
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None


def render(found: RegradeDiff, shown: int = 10) -> str:
    """The answer as text, what matters most last; at most ``shown`` changed rewards of each lineage."""
    grades = ", ".join(f"{count} {told}" for told, count in found.grades.items()) or "none"
    epochs = ", ".join(f"{epoch} ({count})" for epoch, count in sorted(found.replaces.items()))
    lines = [f"{found.epoch}: {found.runs} runs would be regraded; their grades are of {epochs or 'no epoch'}"]
    lines.append(f"  grades: {grades}")
    for part in found.lineages:
        lines += _lines(part, shown)
    return "\n".join([*lines, *impact_lines(found.impact)])


def _lines(part: LineageDiff, shown: int) -> list[str]:
    if not part.named:
        return [f"{part.lineage}: the reward {part.formula!r} does not name it, so no reward changes"]
    means = f"mean {_number(part.mean_before)} → {_number(part.mean_after)}"
    head = f"{part.lineage}: {part.changed} of {part.graded} rewards change ({part.formula}; {means})"
    counts = f"  {part.flips} flip, of which {part.came} come and {part.went} go"
    rows = [
        f"  {change.trajectory_id}  {_number(change.old)} → {_number(change.new)}{'  flips' if change.flips else ''}"
        + (f"  ({change.why[:80]})" if change.why else "")
        for change in sorted(part.changes, key=lambda change: not change.flips)[:shown]
    ]
    more = [f"  … and {part.changed - shown} more (--json has all)"] if part.changed > shown else []
    return [head, counts, *rows, *more]


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.3g}"
