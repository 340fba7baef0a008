"""What a report shows, as one typed tree: the demo fills it, the page renders it, ``--json`` prints it.

Rates are shares of 1, ranges 95 % intervals clustered by world. A value that was not measured is None,
never 0.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct, field

from millstream.evidence import GateEvidence
from millstream.grade import Tally
from millstream.grader_events import AlarmKind
from millstream.policy import Verdict

Range = tuple[float, float]


class ReportVersion(Struct, frozen=True, kw_only=True):
    """One version on the report set, which no gate, training or tuning reads. ``report_success`` at the
    served temperature; ``greedy`` at temperature 0; ``pass_at_4``: one of four attempts right.
    """

    version: int
    report_success: float
    report_ci: Range
    greedy: float | None = None
    greedy_ci: Range | None = None
    pass_at_4: float | None = None
    promoted: bool = False
    verdict: Verdict | None = None


class ReportCandidate(Struct, frozen=True, kw_only=True):
    """What the gate said of a candidate, with the table it said it from."""

    version: int
    verdict: Verdict
    reasons: tuple[str, ...]
    champion: int = 0
    evidence: GateEvidence | None = None


class ReportHack(Struct, frozen=True, kw_only=True):
    """The lineage whose reward has a hole: [before, after] on its own reward and on gold."""

    proxy: Range
    gold: Range
    verdict: Verdict
    reasons: tuple[str, ...] = ()
    formula: str = ""
    evidence: GateEvidence | None = None


class ReportControl(Struct, frozen=True, kw_only=True):
    """The arm trained on the same rollouts picked at random: it must not rise."""

    report_success: float
    report_ci: Range
    greedy: float | None = None


class ReportGrades(Tally, kw_only=True):
    """Counts of all grades, and the reasons of those that are no scores: (grader, kind, reason, count)."""

    reasons: list[tuple[str, str, str, int]] = field(default_factory=list)


class ReportAlarm(Struct, frozen=True, kw_only=True):
    """An alarm about a reward: when it was raised (log time), by what share of which version's runs (``hits`` of
    ``runs``, newest ``trajectory_ids``), what was expected at most, and whether it stops training.
    """

    id: str
    log_ms: int
    lineage: str
    alarm: AlarmKind
    version: int | None
    reason: str
    runs: int
    hits: int
    share: float
    expected: float
    stops: bool
    state: str
    trajectory_ids: tuple[str, ...] = ()


class ReportAudit(Struct, frozen=True, kw_only=True):
    """The books: whether they balance, their lines (what, how many) and what is wrong."""

    balanced: bool
    lines: tuple[tuple[str, int], ...] = ()
    problems: tuple[str, ...] = ()


class FunnelStep(Struct, frozen=True, kw_only=True):
    """A step from events to training: ``count`` of ``unit``; ``lost``: reason → how many ended here.
    Steps of one ``unit`` are drawn to one scale.
    """

    name: str
    count: int
    unit: str = "runs"
    note: str = ""
    lost: dict[str, int] = field(default_factory=dict)


class StoryStep(Struct, frozen=True, kw_only=True):
    """One thing that happened: ``who`` is ``task``, ``policy``, ``tool`` or ``end``; ``call`` is what the
    policy asked for, ``text`` what was said or came back. ``failed``: a tool that answered with an error.
    """

    who: str
    text: str = ""
    thought: str = ""
    call: str = ""
    failed: bool = False


class StoryGrade(Struct, frozen=True, kw_only=True):
    """One grade of the run: its status, its score if it has one, and why."""

    grader: str
    status: str
    score: float | None
    reason: str = ""


class Story(Struct, frozen=True, kw_only=True):
    """One run, readable."""

    trajectory_id: str
    status: str
    question: str
    reference: str = ""
    answer: str = ""
    policy_version: int | None = None
    reward: float | None = None
    steps: tuple[StoryStep, ...] = ()
    grades: tuple[StoryGrade, ...] = ()


class ReportData(Struct, frozen=True, kw_only=True):
    """Everything on the page. ``alarms`` None: nobody watched. ``commands``: (what to type, what it shows)."""

    title: str
    subtitle: str = ""
    seed: int = 0
    seconds: float = 0.0
    tasks: int = 0
    worlds: int = 0
    temperature: float = 0.0
    versions: tuple[ReportVersion, ...] = ()
    candidates: tuple[ReportCandidate, ...] = ()
    hack: ReportHack | None = None
    control: ReportControl | None = None
    alarms: tuple[ReportAlarm, ...] | None = None
    grades: ReportGrades = field(default_factory=ReportGrades)
    audit: ReportAudit | None = None
    funnel: tuple[FunnelStep, ...] = ()
    story: Story | None = None
    commands: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()


def facts(data: ReportData) -> dict[str, Any]:
    """The same facts as plain data, for ``--json``."""
    tree: dict[str, Any] = msgspec.to_builtins(data)
    return tree
