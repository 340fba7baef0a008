"""The fold of ``grades`` per trajectory: which grades count, and the reward that follows.

Rules: the first offset of a grade id wins; of one grader's attempts in one epoch the first that did not
fail counts, else the last; the highest trajectory revision wins; the epoch of the grade that came last
replaces every other, also one that it had been replaced by before. Grades of ``feedback`` graders belong
to the trajectory and not to a revision: the one scored last, by the time at which it held, counts. What
is recalled never counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from millstream.events import TrajectoryId
from millstream.grade import Failed, Grade, GradeGiven, Scored
from millstream.graders.reward import Formula
from millstream.recalls import NONE, Recalls
from millstream.rollout import GradingFinished, Position, RolloutFacts


class KeptGrade(Struct, frozen=True, array_like=True, gc=False):
    """What has to be remembered of a `GradeGiven`."""

    id: str
    epoch: str
    attempt: int
    grade: Grade
    valid_ms: int
    known_ms: int


def is_feedback(grader: str) -> bool:
    """Whether this grader's grades come from outside, at any time."""
    return grader == "feedback" or grader.startswith("feedback.")


def effective(attempts: Sequence[KeptGrade]) -> KeptGrade | None:
    """Of the epoch that came last: the first attempt that did not fail, else the last."""
    if len(attempts) < 2:
        return attempts[0] if attempts else None
    epoch = attempts[-1].epoch
    ordered = sorted((kept for kept in attempts if kept.epoch == epoch), key=lambda kept: kept.attempt)
    return next((k for k in ordered if not isinstance(k.grade, Failed)), ordered[-1])


def newest(given: Iterable[KeptGrade]) -> KeptGrade | None:
    """The feedback that counts, whatever order it came in."""
    return max(given, key=lambda k: (isinstance(k.grade, Scored), k.valid_ms, k.known_ms, k.id), default=None)


def _kept(name: str, given: Sequence[KeptGrade], recalls: Recalls) -> Sequence[KeptGrade]:
    """Those grades of one grader that no recall covers."""
    if name not in recalls.graders:
        return given
    return [kept for kept in given if not recalls.covers(name, kept.epoch, kept.known_ms)]


def _whole(grade: Grade) -> Grade:
    """The grade of the run; what is said of its steps makes no reward."""
    return replace(grade, steps=()) if isinstance(grade, Scored) and grade.steps else grade


class NamedGraders:
    """A reward formula with the graders it names, sorted, apart by whether they run or come from outside."""

    def __init__(self, formula: Formula) -> None:
        self.formula = formula
        self.names = formula.names
        self.run = tuple(sorted(name for name in formula.names if not is_feedback(name)))
        self.outside = tuple(sorted(name for name in formula.names if is_feedback(name)))


class GradedRun(Struct, kw_only=True, array_like=True):
    """One trajectory: its grades by revision, what `GradingFinished` said, and its reward.

    ``waiting``: a named feedback has not come, so the reward may still become known. ``grade_ids``: the
    grades that the reward rests on; ``epochs``: ``grader=epoch`` of the named graders that ran (feedback
    has none that could differ); ``left``: the group that it left while a training held that one's rollouts.
    """

    trajectory_id: TrajectoryId
    grades: dict[str, dict[str, list[KeptGrade]]] = field(default_factory=dict)
    feedback: dict[str, list[KeptGrade]] = field(default_factory=dict)
    revision: int = 0
    content_hash: str = ""
    position: Position = Position("", 0, 0)
    facts: RolloutFacts = field(default_factory=RolloutFacts)
    signature: bytes = b""
    group: str = ""
    reward_revision: int = 0
    reward: float | None = None
    why: str = "not graded"
    waiting: bool = False
    grade_ids: tuple[str, ...] = ()
    epochs: tuple[str, ...] = ()
    recalled: bool = False
    sealed_ms: int = 0
    left: str = ""

    def add(self, given: GradeGiven) -> bool:
        """Take a grade; False when it is a repetition or of an older revision."""
        kept = KeptGrade(given.id, given.epoch, given.attempt, _whole(given.grade), given.valid_ms, given.known_ms)
        if is_feedback(given.grader):
            mine = self.feedback.setdefault(given.grader, [])
        elif given.revision < self.revision:
            return False
        else:
            mine = self.grades.setdefault(str(given.revision), {}).setdefault(given.grader, [])
        for one in mine:
            if one.id == kept.id:
                return False
        mine.append(kept)
        return True

    def finish(self, finished: GradingFinished, signature: bytes) -> None:
        """Take a revision as the current one; grades of older ones are forgotten."""
        self.revision, self.content_hash = finished.revision, finished.content_hash
        self.position, self.facts, self.signature = finished.position, finished.facts, signature
        self.sealed_ms = finished.known_ms
        if len(self.grades) > 1:
            for old in [r for r in self.grades if int(r) < self.revision]:
                del self.grades[old]

    def _attributed(self, given: Iterable[KeptGrade], named: NamedGraders) -> Iterable[KeptGrade]:
        """The words from outside that are this run's: those that held within the window after its end."""
        window = named.formula.attribution_ms
        return given if not window else (kept for kept in given if kept.valid_ms <= self.sealed_ms + window)

    def settle(self, named: NamedGraders, recalls: Recalls = NONE) -> bool:
        """Compute the reward; True when it, or what it rests on, is another than before. What is recalled
        is no reward, but keeps its epoch: the run stays in its group until another epoch grades it.
        """
        mine = self.grades.get(str(self.revision), {})
        grades: dict[str, Grade] = {}
        counted: list[str] = []
        epochs: list[str] = []
        taken = recalls.takes(self.trajectory_id)
        for name in named.run:
            if not (given := mine.get(name)):
                continue
            epochs.append(f"{name}={given[-1].epoch}")
            found = effective(_kept(name, given, recalls))
            if found is None or found.epoch != given[-1].epoch:
                taken = taken or recalls.covers(name, given[-1].epoch, given[-1].known_ms)
                continue
            grades[name] = found.grade
            counted.append(found.id)
        for name in named.outside:
            if (
                found := newest(self._attributed(_kept(name, self.feedback.get(name, ()), recalls), named))
            ) is not None:
                grades[name] = found.grade
                counted.append(found.id)
        self.recalled = taken is not None
        value, why = (None, f"recalled: {taken.reason}") if taken else named.formula.reward(grades)
        self.waiting = value is None and any(not isinstance(grades.get(name), Scored) for name in named.outside)
        rests = tuple(counted)
        changed = value != self.reward or (value is not None and rests != self.grade_ids)
        self.reward, self.why, self.grade_ids, self.epochs = value, why, rests, tuple(epochs)
        return changed
