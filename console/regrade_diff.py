"""``regrade --diff``: what a regrade would change, before anything moves.

The grader runs, but nothing is appended: its new grades are folded beside the old ones, and what differs
is followed to rewards, rollouts in the buffer, and the versions that were trained on them.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from functools import partial

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
    """What the grades ``new`` (those of one run together) would change. Each run is compared as its grades come and
    then let go: only what changes is kept.
    """
    foreign = ledger(log).lineages.keys() - {plain.lineage for plain in lineages}
    parts = [_Part(plain, RewardBook(Formula.of(plain.reward), recalls, also=grader)) for plain in lineages]
    for event in grade_events(log):
        for part in parts:
            part.book.take([event])
    replaces: Counter[str] = Counter()
    told: Counter[str] = Counter()
    for attempts in new:
        if not attempts:
            continue
        name, first = attempts[0].trajectory_id, parts[0].book
        replaces[_standing(first, name, grader)] += 1
        old = first.grade(name, grader)
        for part in parts:
            part.compare(name, attempts, partial(_is_of, plain=part.plain, foreign=foreign, lineages=len(lineages)))
        told[_told(old, first.grade(name, grader))] += 1
        for part in parts:
            part.book.runs.pop(name, None)
    changed = {(part.plain.namespace, change.trajectory_id) for part in parts for change in part.changes}
    return RegradeDiff(
        grader=grader,
        epoch=epoch,
        replaces=dict(replaces),
        runs=replaces.total(),
        grades=dict(told.most_common()),
        lineages=tuple(part.told(grader) for part in parts),
        impact=impact(log, lambda admitted: (admitted.namespace, admitted.trajectory_id) in changed),
    )


def _standing(book: RewardBook, name: str, grader: str) -> str:
    """The epoch of a run's standing grade."""
    run = book.runs.get(name)
    kept = run.grades.get(str(run.revision), {}).get(grader, ()) if run else ()
    return kept[-1].epoch if kept else "none"


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


class _Part:
    """One lineage's part of the answer, run by run."""

    def __init__(self, plain: Plain, book: RewardBook) -> None:
        self.plain, self.book = plain, book
        self.changes: list[RewardChange] = []
        self.graded = 0
        self._before, self._after = array("d"), array("d")

    def compare(self, name: str, attempts: Sequence[GradeGiven], counts: Callable[[RunReward], bool]) -> None:
        """Take the new grades of a run, and what they change of its reward, where the run ``counts``."""
        was = self.book.reward(name) if name in self.book.runs else None
        self.book.take(attempts)
        if was is None or not counts(was):
            return
        now = self.book.reward(name)
        self.graded += was.reward is not None or now.reward is not None
        for kept, reward in ((self._before, was.reward), (self._after, now.reward)):
            if reward is not None:
                kept.append(reward)
        if was.reward != now.reward:
            self.changes.append(_change(was, now, self.book.named.formula))

    def told(self, grader: str) -> LineageDiff:
        """The part, when every run was compared."""
        return LineageDiff(
            lineage=self.plain.lineage,
            namespace=self.plain.namespace,
            formula=self.plain.reward.formula,
            named=grader in self.book.named.names,
            graded=self.graded,
            changed=len(self.changes),
            flips=sum(change.flips for change in self.changes),
            came=sum(change.old is None for change in self.changes),
            went=sum(change.new is None for change in self.changes),
            mean_before=_mean(self._before),
            mean_after=_mean(self._after),
            changes=tuple(self.changes),
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


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


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
