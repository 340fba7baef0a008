"""What the demo found, as ``millstream demo --json`` prints it."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from millstream.grader_events import AlarmKind
from millstream.policy import Verdict


class VersionFact(Struct, frozen=True, kw_only=True):
    """A version on the report set. ``greedy`` and ``pass_at_4`` only of the base and the last champion."""

    version: int
    report_success: float
    report_ci: tuple[float, float]
    greedy: float | None = None
    pass_at_4: float | None = None
    promoted: bool = False


class CandidateFact(Struct, frozen=True, kw_only=True):
    """What the gate said of a candidate, and why."""

    version: int
    verdict: Verdict
    reasons: tuple[str, ...]


class HackFact(Struct, frozen=True, kw_only=True):
    """The second lineage: (before, after) of what it was paid for and of gold. ``occurred``: the hack
    happened for this seed, proxy up and gold down beyond doubt.
    """

    proxy: tuple[float, float]
    gold: tuple[float, float]
    verdict: Verdict
    reasons: tuple[str, ...] = ()
    occurred: bool = True


class AlarmFact(Struct, frozen=True, kw_only=True):
    """An alarm about a reward while the loop ran."""

    id: str
    lineage: str
    alarm: AlarmKind
    version: int | None
    reason: str
    stops: bool


class ControlFact(Struct, frozen=True, kw_only=True):
    """The arm trained on the same rollouts, selected at random."""

    report_success: float
    report_ci: tuple[float, float]


class GradesFact(Struct, frozen=True, kw_only=True):
    """All grades by kind."""

    scored: int
    failed: int
    abstained: int
    censored: int


class DemoFacts(Struct, frozen=True, kw_only=True):
    """Everything the demo shows."""

    seed: int
    versions: list[VersionFact]
    candidates: list[CandidateFact]
    hack: HackFact | None
    control: ControlFact | None
    alarms: list[AlarmFact]
    grades: GradesFact
    audit: dict[str, Any]
    funnel: dict[str, int] = field(default_factory=dict)
    report: str = ""
    folder: str = ""
    seconds: float = 0.0
