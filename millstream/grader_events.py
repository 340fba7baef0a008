"""What is known of the graders themselves: events on ``policy-events`` and the fold that says what stands.

A grader is the teacher, so what was found out about it is a decision like any other: `GraderExamined` when
it met the attack battery, `AlarmRaised` when the stream shows that it is being fooled, `AlarmCleared` when
somebody looked and says why the training may go on.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, TypeAlias

from msgspec import Struct, field

from millstream.policy_event import PolicyEvent

GraderVerdict: TypeAlias = Literal["sound", "weak", "blind", "untested"]
"""``weak``: it pays for an attack. ``blind``: it pays wrong answers as it pays right ones. ``untested``: it
knew none of the right answers, so nothing was learned. Only the first two bar it from the gate.
"""
AlarmKind: TypeAlias = Literal["hack", "avoidance", "drift", "disagreement"]


def stopped(alarm: AlarmRaised) -> str:
    """Why nothing is trained while an alarm stands, and the mend, in words."""
    mend = f"look at its runs (`millstream alarms show {alarm.id}`), then `millstream alarms clear {alarm.id}`"
    return f"{alarm.alarm} alarm: {alarm.reason}; {mend}"


EVERY_LINEAGE = ""
"""The lineage of an event that is about a grader, whoever is trained on it."""


class Finding(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One family of attacks: ``tried`` runs on ``tasks`` tasks, ``paid`` of the tasks gave the attack more
    than is fair, by ``excess`` (share of the range) in the worst case, of which ``example`` is one.
    ``escaped``: runs that got no score where the plain wrong answer got one.
    """

    family: str
    tried: int
    tasks: int
    paid: int = 0
    escaped: int = 0
    excess: float = 0.0
    example: str = ""


class GraderExamined(PolicyEvent, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """A grader met the attack battery. ``battery`` is the battery's version, ``tasks`` how many tasks told
    something, ``own_tasks`` whether they were the operator's.
    """

    grader: str
    epoch: str
    battery: int
    verdict: GraderVerdict
    tasks: int
    reason: str
    findings: tuple[Finding, ...] = ()
    own_tasks: bool = False


class AlarmRaised(PolicyEvent, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """The stream shows that a reward is being fooled. ``hits`` of ``runs`` runs of ``version`` did what
    ``measure`` names, ``share`` of them where at most ``expected`` was (``reference`` says of whom);
    ``evidence`` is the e-value. ``trajectory_ids``: the runs that raised it, newest last, ``hits`` in all.
    ``graders``: whose grades make the reward; while it stands and ``stops``, nothing is trained on it.
    """

    alarm: AlarmKind
    measure: str
    graders: tuple[str, ...]
    version: int | None
    reference: str
    runs: int
    hits: int
    share: float
    expected: float
    evidence: float
    reason: str
    trajectory_ids: tuple[str, ...] = ()
    stops: bool = True


class AlarmCleared(PolicyEvent, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Somebody looked at an alarm: training may go on, and why."""

    alarm_id: str
    reason: str
    by: str = ""


GraderEvent: TypeAlias = GraderExamined | AlarmRaised | AlarmCleared


class GraderBook(Struct, kw_only=True):
    """The fold of the events above: the last examination of each grader, every alarm, what was cleared."""

    examined: dict[str, GraderExamined] = field(default_factory=dict)
    alarms: dict[str, AlarmRaised] = field(default_factory=dict)
    cleared: dict[str, AlarmCleared] = field(default_factory=dict)

    def apply(self, event: GraderEvent) -> bool:
        """Fold one event in; False when it repeats what is known or clears no alarm."""
        match event:
            case GraderExamined():
                known = self.examined.get(event.grader)
                self.examined[event.grader] = event
                return known is None or known.id != event.id
            case AlarmRaised():
                return self.alarms.setdefault(event.id, event) is event
            case AlarmCleared():
                known_alarm = event.alarm_id in self.alarms
                return known_alarm and self.cleared.setdefault(event.alarm_id, event) is event

    def standing(self, lineage: str) -> list[AlarmRaised]:
        """The alarms of a lineage that nobody has cleared, oldest first."""
        return [a for a in self.alarms.values() if a.lineage == lineage and a.id not in self.cleared]

    def stopping(self, lineage: str, graders: Collection[str]) -> AlarmRaised | None:
        """The alarm that keeps a lineage from being trained on a reward made of these graders, or None."""
        return next((a for a in self.standing(lineage) if a.stops and not set(a.graders).isdisjoint(graders)), None)

    def unfit(self, grader: str) -> GraderExamined | None:
        """The examination that bars a grader from the gate, or None."""
        found = self.examined.get(grader)
        return found if found is not None and found.verdict in ("weak", "blind") else None
