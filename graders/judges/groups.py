"""The rollouts of one task, judged against each other: group-relative scores and pairs of preferences.

A ``ranking`` judge puts a group in order. A ``pairwise`` or ``constitution`` judge compares every two of it (the
latter after critiques: RLAIF); the score of a run is then the share of its comparisons won, a tie counting half.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Final, TypeAlias

from msgspec import Struct

from millstream.errors import SettingsError
from millstream.events import TrajectoryId
from millstream.grade import Abstained, Failed, Grade
from millstream.graders.judges.constitution import Constitution
from millstream.graders.judges.judge import Judge
from millstream.graders.judges.pairwise import WORTH, Pairwise, Preference, compare
from millstream.graders.judges.ranking import MOST, Ranking
from millstream.graders.judges.shown import signs
from millstream.graders.judges.sitting import Sitting
from millstream.trajectory import Trajectory

GroupJudge: TypeAlias = Ranking | Pairwise | Constitution
MOST_COMPARED: Final = 8
"""The most runs that are compared two by two: 28 pairs, 56 questions."""


class Place(Struct, frozen=True, kw_only=True):
    """One run of a group, and its score in [0, 1] among the others."""

    trajectory_id: TrajectoryId
    score: float


class Pair(Struct, frozen=True, kw_only=True):
    """Of two runs the preferred one, and why."""

    chosen: TrajectoryId
    rejected: TrajectoryId
    reason: str = ""


class GroupJudged(Struct, frozen=True, kw_only=True):
    """What a judge made of a group. ``status``: scored, abstained or failed, with its reason. ``agreement``: how far
    a ranking's two orders agreed (Kendall's τ). ``left_out``: runs beyond what one question can hold.
    """

    task: str
    version: int | None
    status: str
    reason: str = ""
    places: tuple[Place, ...] = ()
    pairs: tuple[Pair, ...] = ()
    agreement: float | None = None
    left_out: int = 0
    cost: float = 0.0
    model: str = ""
    flags: tuple[str, ...] = ()


def group_judge(native: object, name: str) -> GroupJudge:
    """The same. Raises `SettingsError` for a judge that knows one run only."""
    if isinstance(native, Ranking | Pairwise | Constitution):
        return native
    raise SettingsError(
        f"judge {name!r} grades one run alone; a group needs the kind ranking, pairwise or constitution"
    )


def grouped(runs: Iterable[Trajectory]) -> list[list[Trajectory]]:
    """Runs of one task, one lineage and one policy version, at least two; what telemetry cut short is left out."""
    found: dict[tuple[object, ...], list[Trajectory]] = {}
    for t in runs:
        started = t.started
        if started is not None and not t.censored and (t.task.id or t.task.question):
            key = (t.task.id or t.task.question, started.lineage, started.policy_version)
            found.setdefault(key, []).append(t)
    return [sorted(group, key=lambda t: t.id) for group in found.values() if len(group) > 1]


def judged(judge: Judge, native: GroupJudge, group: Sequence[Trajectory]) -> GroupJudged:
    """A group, judged. Raises nothing for what the judge did: such a group has failed."""
    runs = list(group[: MOST if isinstance(native, Ranking) else MOST_COMPARED])
    answers, question = [t.final_answer or "" for t in runs], runs[0].task.question
    ids = [t.id for t in runs]
    made: list[_Made] = []

    def act(sitting: Sitting) -> Grade:
        made.append(_ranked(sitting, native, question, answers) or _compared(sitting, native, question, answers))
        return Abstained(reason=made[0].reason)

    told = Sitting(judge, native, tuple(signs(question, *answers))).end(act)
    found = made[0] if made else _Made()
    return GroupJudged(
        task=str(runs[0].task.id or question),
        version=runs[0].started.policy_version if runs[0].started else None,
        status="scored" if made else "failed",
        reason=_reason(told.grade),
        places=tuple(Place(trajectory_id=ids[n], score=score) for n, score in enumerate(found.scores)),
        pairs=tuple(Pair(chosen=ids[a], rejected=ids[b], reason=why) for a, b, why in found.preferred),
        agreement=found.agreement,
        left_out=len(group) - len(runs),
        cost=told.cost,
        model=told.model,
        flags=told.flags,
    )


class _Made(Struct, kw_only=True):
    """Scores by place, and which place is preferred to which, with the reason."""

    scores: tuple[float, ...] = ()
    preferred: tuple[tuple[int, int, str], ...] = ()
    agreement: float | None = None
    reason: str = ""


def _reason(grade: Grade) -> str:
    kind = f"{grade.kind}: " if isinstance(grade, Failed) else ""
    return f"{kind}{grade.reason}"


def _ranked(sitting: Sitting, native: GroupJudge, question: str, answers: Sequence[str]) -> _Made | None:
    """By a ranking; None for a judge that compares. Raises `JudgeFault`."""
    if not isinstance(native, Ranking):
        return None
    ranked = native.rank(sitting, question, answers)
    order = sorted(range(len(answers)), key=lambda n: -ranked.scores[n])
    preferred = tuple((a, b, ranked.reason) for a, b in combinations(order, 2) if ranked.scores[a] > ranked.scores[b])
    return _Made(scores=ranked.scores, preferred=preferred, agreement=ranked.agreement, reason=ranked.reason)


def _compared(sitting: Sitting, native: GroupJudge, question: str, answers: Sequence[str]) -> _Made:
    """By every two. Raises `JudgeFault`."""
    points, preferred = [0.0] * len(answers), []
    for a, b in combinations(range(len(answers)), 2):
        found = _preference(sitting, native, question, answers[a], answers[b])
        points[a] += WORTH[found.winner]
        points[b] += 1.0 - WORTH[found.winner]
        if found.winner != "tie":
            better, worse = (a, b) if found.winner == "first" else (b, a)
            preferred.append((better, worse, found.reason))
    return _Made(scores=tuple(won / (len(answers) - 1) for won in points), preferred=tuple(preferred))


def _preference(sitting: Sitting, native: GroupJudge, question: str, a: str, b: str) -> Preference:
    if isinstance(native, Constitution):
        return native.prefer(sitting, question, a, b)
    return compare(sitting, native.criteria, question, a, b)
