"""Grades: what a grader said of a trajectory, as a sum type to the very end.

Only `Scored` ever reaches a mean, an advantage or a gate. A grader that failed says so; nothing in
this system turns a failure into a number.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal, TypeAlias

from msgspec import Struct, field

from millstream.errors import GraderError
from millstream.events import TrajectoryId

FailedKind: TypeAlias = Literal["error", "timeout", "unparsable", "infrastructure"]


class StepGrade(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a grader says of one step: ``step`` counts the policy's actions from 1 (`Trajectory.steps`)."""

    step: int
    label: str
    score: float | None = None
    reason: str = ""

    def __post_init__(self) -> None:
        if self.step < 1 or (self.score is not None and not math.isfinite(self.score)):
            raise GraderError(f"a step counts from 1 and its score is finite, not step {self.step}, {self.score!r}")


class Scored(Struct, frozen=True, kw_only=True, tag_field="status", tag="scored", omit_defaults=True):
    """A finite score, raw (in the grader's declared range). ``steps``: what it says of single steps beside."""

    score: float
    label: str = ""
    reason: str = ""
    steps: tuple[StepGrade, ...] = ()

    def __post_init__(self) -> None:
        if not math.isfinite(self.score):
            raise GraderError(f"a score must be finite, not {self.score!r}")


class Abstained(Struct, frozen=True, kw_only=True, tag_field="status", tag="abstained"):
    """The grader has nothing to say about this run."""

    reason: str


class Failed(Struct, frozen=True, kw_only=True, tag_field="status", tag="failed"):
    """The grader could not grade. Never a reward."""

    kind: FailedKind
    reason: str


class Censored(Struct, frozen=True, kw_only=True, tag_field="status", tag="censored"):
    """The run was cut short by telemetry or infrastructure, so grading it would mislead."""

    reason: str


Grade: TypeAlias = Scored | Abstained | Failed | Censored


def score(value: float, *, label: str = "", reason: str = "", steps: Iterable[StepGrade] = ()) -> Scored:
    """A score, with grades of single steps where there are any. Raises `GraderError` when it is not finite."""
    return Scored(score=float(value), label=label, reason=reason, steps=tuple(steps))


def step(number: int, label: str, value: float | None = None, *, reason: str = "") -> StepGrade:
    """What is to be said of the policy's ``number``-th action, counted from 1. Raises `GraderError` when it can't
    be one.
    """
    return StepGrade(step=number, label=label, score=value, reason=reason)


def abstain(reason: str) -> Abstained:
    """Nothing to say, and why."""
    return Abstained(reason=reason)


def first_line(reason: str) -> str:
    """What a reason says in one line; a traceback may follow it."""
    return reason.partition("\n")[0]


def fail(reason: str, kind: FailedKind = "error") -> Failed:
    """The grader could not do its work, and why."""
    return Failed(kind=kind, reason=reason)


class GradeGiven(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag=True):
    """One grade of one trajectory revision by one grader epoch. ``id`` = hash of trajectory id,
    revision, epoch and attempt; the first offset of an id wins. Costs in the price table's currency,
    times in nanoseconds; ``known_ms`` is the log time of the trajectory record, ``valid_ms`` when the
    judged fact held. ``propensity``: the probability with which this run was graded at all, where a budget
    thins (means over graded runs are weighted by its inverse).
    """

    id: str
    trajectory_id: TrajectoryId
    revision: int
    grader: str
    epoch: str
    grade: Grade
    attempt: int = 1
    input_hash: str = ""
    cost: float = 0.0
    latency_ns: int = 0
    valid_ms: int = 0
    known_ms: int = 0
    source: str = ""
    flags: tuple[str, ...] = ()
    propensity: float = 1.0


def score_of(grade: Grade | None) -> float | None:
    """The number of a Scored grade, None for all else (the only door from a grade to a number)."""
    return grade.score if isinstance(grade, Scored) else None


class Tally(Struct, kw_only=True):
    """Counts of grades by kind; every figure about grades prints these as its denominators."""

    scored: int = 0
    failed: int = 0
    abstained: int = 0
    censored: int = 0
    failed_kinds: dict[str, int] = field(default_factory=dict)

    def add(self, grade: Grade) -> None:
        """Count one grade."""
        name = {Scored: "scored", Failed: "failed", Abstained: "abstained", Censored: "censored"}[type(grade)]
        setattr(self, name, getattr(self, name) + 1)
        if isinstance(grade, Failed):
            self.failed_kinds[grade.kind] = self.failed_kinds.get(grade.kind, 0) + 1
