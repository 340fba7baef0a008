"""Audits: runs on which both the reward and gold have spoken, in the order in which they were decided.

Gold that comes from outside comes late, and bad news comes first: a stream of complaints compared in order of
arrival would raise an alarm against any reward. So a run waits for its gold until ``gold_wait_s`` are over, and
those behind it wait as well; what comes later is not counted.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct, field

from millstream.grade import Grade, Scored, score_of
from millstream.graders.reward import Formula
from millstream.streams.alarm_measures import DISAGREES, FOOLED, Sample
from millstream.streams.graded_runs import is_feedback

KEPT_EARLY = 10_000
KEPT_WAITING = 50_000


def bare(grade: Grade) -> Grade:
    """The grade without its words, which state need not hold."""
    value = score_of(grade)
    return grade if value is None else Scored(score=value)


class Audit(Struct, kw_only=True):
    """A run that waits for grades from outside: those it has."""

    trajectory_id: str
    task: str
    version: str
    known_ms: int
    grades: dict[str, Grade]


class Audited(Struct, frozen=True):
    """What came of an audit: whether the reward was fooled, and whether it disagrees with gold."""

    version: str
    sample: Sample


class Audits(Struct, kw_only=True):
    """The queue. ``early``: feedback on runs that are not graded yet."""

    waiting: dict[str, Audit] = field(default_factory=dict)
    early: dict[str, dict[str, Grade]] = field(default_factory=dict)
    late: int = 0

    def feedback(self, trajectory_id: str, grader: str, grade: Grade) -> None:
        """A grade from outside; of several the last one scored counts."""
        if score_of(grade) is None:
            return
        audit = self.waiting.get(trajectory_id)
        if audit is not None:
            audit.grades[grader] = bare(grade)
            return
        self.early.setdefault(trajectory_id, {})[grader] = bare(grade)
        if len(self.early) > KEPT_EARLY:
            del self.early[next(iter(self.early))]
            self.late += 1

    def add(self, audit: Audit) -> None:
        """A run was graded."""
        audit.grades.update(self.early.pop(audit.trajectory_id, {}))
        self.waiting[audit.trajectory_id] = audit
        if len(self.waiting) > KEPT_WAITING:
            del self.waiting[next(iter(self.waiting))]

    def ready(self, rules: Rules, now_ms: int) -> Iterator[Audited]:
        """The audits that are decided by now, oldest first."""
        while self.waiting:
            first = next(iter(self.waiting))
            audit = self.waiting[first]
            settled = rules.settled(audit)
            if not settled and now_ms - audit.known_ms < rules.wait_ms:
                return
            del self.waiting[first]
            if settled and (found := rules.audited(audit)) is not None:
                yield found


class Rules(Struct, frozen=True):
    """What makes an audit: the reward's formula, the gold grader, and from which score on gold is a success."""

    formula: Formula
    gold: str
    gold_pass: float
    wait_ms: int

    def settled(self, audit: Audit) -> bool:
        """Whether everything that comes from outside is there."""
        return all(name in audit.grades for name in (*self.formula.names, self.gold) if is_feedback(name))

    def audited(self, audit: Audit) -> Audited | None:
        """Both words, or None where one of them is missing."""
        reward, gold = self.formula.reward(audit.grades).value, score_of(audit.grades.get(self.gold))
        if reward is None or gold is None:
            return None
        paid, right = self.formula.succeeds(reward), gold >= self.gold_pass
        told = {FOOLED.name: paid and not right, DISAGREES.name: paid != right}
        hits = tuple(name for name, hit in told.items() if hit)
        return Audited(audit.version, Sample(audit.trajectory_id, audit.task, hits))
