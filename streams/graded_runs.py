"""The fold of ``grades`` per trajectory: which grades count, and the reward that follows.

Rules: the first offset of a grade id wins; of one grader's attempts the first that did not fail counts,
else the last; the highest trajectory revision wins; a newer grader epoch replaces an older one. Grades
of ``feedback`` graders belong to the trajectory and not to a revision: the one scored last, by the time
at which it held, counts.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct, field

from millstream.events import TrajectoryId
from millstream.grade import Failed, Grade, GradeGiven, Scored
from millstream.graders.reward import Formula
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


def effective(attempts: Iterable[KeptGrade]) -> KeptGrade | None:
    """The first attempt that did not fail, else the last."""
    ordered = sorted(attempts, key=lambda kept: kept.attempt)
    return next((k for k in ordered if not isinstance(k.grade, Failed)), ordered[-1] if ordered else None)


def newest(given: Iterable[KeptGrade]) -> KeptGrade | None:
    """The feedback that counts, whatever order it came in."""
    return max(given, key=lambda k: (isinstance(k.grade, Scored), k.valid_ms, k.known_ms, k.id), default=None)


class GradedRun(Struct, kw_only=True):
    """One trajectory: its grades by revision, what `GradingFinished` said, and its reward.

    ``waiting``: a named feedback has not come, so the reward may still become known.
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
    counted: list[KeptGrade] = field(default_factory=list)

    def add(self, given: GradeGiven) -> bool:
        """Take a grade; False when it is a repetition or of an older revision."""
        kept = KeptGrade(given.id, given.epoch, given.attempt, given.grade, given.valid_ms, given.known_ms)
        if is_feedback(given.grader):
            mine = self.feedback.setdefault(given.grader, [])
        elif given.revision < self.revision:
            return False
        else:
            mine = self.grades.setdefault(str(given.revision), {}).setdefault(given.grader, [])
            if mine and mine[0].epoch != kept.epoch:
                mine.clear()
        if any(one.id == kept.id for one in mine):
            return False
        mine.append(kept)
        return True

    def finish(self, finished: GradingFinished, signature: bytes) -> None:
        """Take a revision as the current one; grades of older ones are forgotten."""
        self.revision, self.content_hash = finished.revision, finished.content_hash
        self.position, self.facts, self.signature = finished.position, finished.facts, signature
        for old in [r for r in self.grades if int(r) < self.revision]:
            del self.grades[old]

    def settle(self, formula: Formula) -> bool:
        """Compute the reward; True when it, or what it rests on, is another than before."""
        mine = self.grades.get(str(self.revision), {})
        counted: dict[str, KeptGrade] = {}
        for name in formula.names:
            found = newest(self.feedback.get(name, ())) if is_feedback(name) else effective(mine.get(name, ()))
            if found is not None:
                counted[name] = found
        value, why = formula.reward({name: kept.grade for name, kept in counted.items()})
        self.waiting = value is None and any(
            is_feedback(name) and not (name in counted and isinstance(counted[name].grade, Scored))
            for name in formula.names
        )
        kept = [counted[name] for name in sorted(counted)]  # a set's order differs from process to process
        changed = value != self.reward or (value is not None and kept != self.counted)
        self.reward, self.why, self.counted = value, why, kept
        return changed

    @property
    def grade_ids(self) -> tuple[str, ...]:
        """The grades that the reward rests on."""
        return tuple(kept.id for kept in self.counted)

    def epochs(self, formula: Formula) -> tuple[str, ...]:
        """``grader=epoch`` of the named graders that ran; feedback has none that could differ."""
        mine = self.grades.get(str(self.revision), {})
        return tuple(
            f"{name}={mine[name][0].epoch}" for name in sorted(formula.names) if name in mine and not is_feedback(name)
        )
