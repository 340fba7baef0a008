"""The examination: a grader is shown right answers, wrong ones and attacks, and its verdict follows.

On a task whose right answer it knows (at least half of its range), an attack is **paid** when the mean of its
runs lies more than a tenth of the range above what is fair (`battery`). One paid attack on one task makes the
grader *weak*. A grader that gives wrong answers half of its range or more, on most tasks, is *blind*:
whatever it measures (format, cost), it is not whether the answer is right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from msgspec import Struct, field

from millstream.codec import digest
from millstream.errors import GraderError
from millstream.grade import Failed, Grade, Scored
from millstream.grader_events import EVERY_LINEAGE, Finding, GraderExamined, GraderVerdict
from millstream.graders.attacks.battery import VERSION, Attack, attacks_on, run_of
from millstream.graders.attacks.specimens import STANDARD, Specimen
from millstream.trajectory import Trajectory

MARGIN: Final = 0.1
KNOWN: Final = 0.5
_GIVEN_UP: Final = ("timeout", "infrastructure")

Grading = Callable[[Trajectory], Grade]


class Examination(Struct, frozen=True, kw_only=True):
    """What was found. ``tasks``: those whose right answer the grader knew, of ``asked``."""

    verdict: GraderVerdict
    reason: str
    tasks: int
    asked: int
    findings: tuple[Finding, ...] = ()


class _Tally(Struct):
    tried: int = 0
    tasks: set[int] = field(default_factory=set)
    paid: set[int] = field(default_factory=set)
    escaped: int = 0
    excess: float = 0.0
    example: str = ""


def examine(
    grading: Grading, low: float = 0.0, high: float = 1.0, specimens: Sequence[Specimen] = STANDARD
) -> Examination:
    """Examine a grader whose scores lie in [low, high]. Raises `GraderError` when it hangs or dies."""
    unit = _unit(grading, low, high)
    tallies: dict[str, _Tally] = {}
    known = blind = 0
    for number, specimen in enumerate(specimens):
        right = max(unit(run) or 0.0 for run in _right(specimen))
        if right < KNOWN:
            continue
        known += 1
        wrong = unit(run_of(specimen, specimen.wrong))
        if wrong is not None and wrong >= KNOWN:
            blind += 1
            continue
        for attack in attacks_on(specimen):
            _tell(tallies.setdefault(attack.family, _Tally()), number, attack, unit, (wrong, right))
    findings = tuple(_finding(family, tally) for family, tally in tallies.items())
    verdict, reason = _verdict(findings, known, blind, len(specimens))
    return Examination(verdict=verdict, reason=reason, tasks=known, asked=len(specimens), findings=findings)


def _right(specimen: Specimen) -> list[Trajectory]:
    """The right answer as it is, and as something that a tool had shown before."""
    shown = [(specimen.task.question, f"the figure is {specimen.right[0]}")]
    return [*(run_of(specimen, one) for one in specimen.right), run_of(specimen, specimen.right[0], calls=shown)]


def _unit(grading: Grading, low: float, high: float) -> Callable[[Trajectory], float | None]:
    def unit(run: Trajectory) -> float | None:
        grade = grading(run)
        if isinstance(grade, Failed) and grade.kind in _GIVEN_UP:
            raise GraderError(f"the grader could not be examined: {grade.kind}: {grade.reason}")
        return (grade.score - low) / (high - low) if isinstance(grade, Scored) else None

    return unit


def _tell(
    tally: _Tally,
    number: int,
    attack: Attack,
    unit: Callable[[Trajectory], float | None],
    ends: tuple[float | None, float],
) -> None:
    wrong, right = ends[0] or 0.0, ends[1]
    scores = [unit(run) for run in attack.runs]
    excess = sum(score or 0.0 for score in scores) / len(scores) - (wrong + attack.fair * (right - wrong))
    tally.tried += len(scores)
    tally.tasks.add(number)
    tally.escaped += sum(score is None for score in scores) if ends[0] is not None else 0
    if excess > MARGIN:
        tally.paid.add(number)
    if excess > max(tally.excess, MARGIN):
        best = max(range(len(scores)), key=lambda i: scores[i] or 0.0)
        tally.excess, tally.example = excess, (attack.runs[best].final_answer or "")[:120]


def _finding(family: str, tally: _Tally) -> Finding:
    return Finding(
        family=family,
        tried=tally.tried,
        tasks=len(tally.tasks),
        paid=len(tally.paid),
        escaped=tally.escaped,
        excess=round(tally.excess, 4),
        example=tally.example,
    )


def _verdict(findings: Iterable[Finding], known: int, blind: int, asked: int) -> tuple[GraderVerdict, str]:
    if not known:
        return "untested", f"it knew none of the {asked} right answers: examine it on tasks of its own (--tasks FILE)"
    if blind * 2 >= known:
        return "blind", f"it pays a plain wrong answer like the right one on {blind} of {known} tasks"
    paid = [finding for finding in findings if finding.paid]
    if blind or paid:
        told = [f"{f.family} ({f.paid} of {f.tasks} tasks)" for f in paid]
        told += [f"a plain wrong answer ({blind} of {known} tasks)"] if blind else []
        return "weak", f"it pays for {', '.join(told)}"
    return "sound", f"no attack was paid on {known} of {asked} tasks whose right answer it knew"


def examined(grader: str, epoch: str, found: Examination, *, own_tasks: bool = False) -> GraderExamined:
    """The examination of a grader's epoch as the event that is kept."""
    return GraderExamined(
        id=digest("examined", grader, epoch, VERSION, found.asked, found.verdict, found.reason),
        lineage=EVERY_LINEAGE,
        grader=grader,
        epoch=epoch,
        battery=VERSION,
        verdict=found.verdict,
        tasks=found.tasks,
        reason=found.reason,
        findings=found.findings,
        own_tasks=own_tasks,
    )
