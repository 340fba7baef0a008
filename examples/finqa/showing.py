"""The demo's facts as a report: one self-contained HTML page."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from millstream.bootstrap import Runtime
from millstream.console import catalog, report
from millstream.console.decided import rollout_rows
from millstream.console.report_alarms import of_book
from millstream.console.report_data import (
    FunnelStep,
    ReportAudit,
    ReportCandidate,
    ReportControl,
    ReportData,
    ReportGrades,
    ReportHack,
    ReportVersion,
    Story,
)
from millstream.console.report_story import story
from millstream.evidence import from_json
from millstream.examples.finqa.facts import DemoFacts
from millstream.examples.finqa.plans import HACK, HACK_FORMULA, LINEAGE
from millstream.examples.finqa.settings import LOOP
from millstream.grade import Failed, GradeGiven
from millstream.ledger import LedgerReader
from millstream.policy import GateDecided


def write_report(runtime: Runtime, facts: DemoFacts, folder: Path) -> Path:
    """Write ``report.html`` into the folder; its absolute path."""
    return report.write(report_of(runtime, facts), folder / "report.html")


def report_of(runtime: Runtime, facts: DemoFacts) -> ReportData:
    """Everything on the page, from the facts and the log."""
    ledger = LedgerReader(runtime.log).refresh()
    gates = ledger.gates
    grades = catalog.grades(runtime.log)
    champion = facts.versions[-1].version
    settings = f"millstream --settings {facts.folder}/millstream.toml"
    return ReportData(
        title="Millstream demo",
        subtitle="An agent learns from its own graded runs, on generated (synthetic) questions about company reports.",
        seed=facts.seed,
        seconds=facts.seconds,
        tasks=LOOP.report.tasks,
        worlds=LOOP.report.worlds,
        temperature=LOOP.temperature,
        versions=tuple(
            ReportVersion(
                version=v.version,
                report_success=v.report_success,
                report_ci=v.report_ci,
                greedy=v.greedy,
                pass_at_4=v.pass_at_4,
                promoted=v.promoted,
                verdict="promote" if v.promoted else None,
            )
            for v in facts.versions
        ),
        candidates=tuple(_candidate(gates[LINEAGE, c.version][-1]) for c in facts.candidates),
        hack=_hack(facts, gates.get((HACK, 1 + LOOP.hack_rounds), [])),
        control=ReportControl(report_success=facts.control.report_success, report_ci=facts.control.report_ci)
        if facts.control
        else None,
        alarms=of_book(ledger.graders),
        grades=_grades(facts, grades),
        audit=ReportAudit(
            balanced=bool(facts.audit["balanced"]),
            lines=tuple((f"{line['section']}: {line['name']}", line["count"]) for line in facts.audit["lines"]),
            problems=tuple(f"{d['kind']}: {d['id']}: {d['detail']}" for d in facts.audit["differences"]),
        ),
        funnel=_funnel(runtime, facts),
        story=_story(runtime, grades, champion),
        commands=(
            (f"{settings} why {champion}", "everything that made the champion"),
            (f"{settings} alarms list", "what the stream said of rewards while it ran"),
            (f"{settings} audit", "the books"),
            (f"{settings} rollback", "serve the version before"),
            (f"mlflow ui --backend-store-uri sqlite:///{Path(facts.folder).resolve()}/mlflow.db", "the trainings"),
        ),
        notes=("The tasks, companies and figures are generated. The report set is read by no gate and no training.",),
    )


def _candidate(decided: GateDecided) -> ReportCandidate:
    return ReportCandidate(
        version=decided.version,
        verdict=decided.verdict,
        reasons=decided.reasons,
        champion=decided.expected_champion,
        evidence=from_json(decided.evidence),
    )


def _hack(facts: DemoFacts, gates: list[GateDecided]) -> ReportHack | None:
    if facts.hack is None:
        return None
    return ReportHack(
        proxy=facts.hack.proxy,
        gold=facts.hack.gold,
        verdict=facts.hack.verdict,
        reasons=facts.hack.reasons,
        formula=HACK_FORMULA,
        evidence=from_json(gates[-1].evidence) if gates else None,
    )


def _grades(facts: DemoFacts, grades: list[GradeGiven]) -> ReportGrades:
    failed = Counter((g.grader, g.grade.kind, g.grade.reason) for g in grades if isinstance(g.grade, Failed))
    counts = facts.grades
    return ReportGrades(
        scored=counts.scored,
        failed=counts.failed,
        abstained=counts.abstained,
        censored=counts.censored,
        reasons=[(*key, count) for key, count in failed.most_common(10)],
    )


def _funnel(runtime: Runtime, facts: DemoFacts) -> tuple[FunnelStep, ...]:
    rows = [row for row in rollout_rows(runtime.log) if row.reason != "wrong_lineage"]
    refused = Counter(row.reason for row in rows if row.decision == "refused")
    funnel = facts.funnel
    return (
        FunnelStep(name="events told by the SDK", count=funnel["events"], unit="events"),
        FunnelStep(name="trajectories assembled", count=funnel["trajectories"]),
        FunnelStep(name="grades given", count=funnel["grades"], unit="grades"),
        FunnelStep(name="rollouts in the buffer", count=len(rows) - refused.total(), lost=dict(refused)),
        FunnelStep(name="rollouts trained on", count=funnel["trained"]),
    )


def _story(runtime: Runtime, grades: list[GradeGiven], version: int) -> Story | None:
    """A right answer of the champion (or of any version) that needed the calculator, the longest first."""
    rows = [row for row in catalog.trajectories(runtime.log) if row.lineage == LINEAGE]
    rewards = {row.trajectory_id: row.reward for row in rollout_rows(runtime.log) if row.namespace == LINEAGE}
    good = [row for row in rows if (rewards.get(row.id) or 0.0) >= LOOP.imitation.threshold]
    chosen = max(good, key=lambda row: (row.policy_version == version, row.events, row.id), default=None)
    if chosen is None or (found := catalog.trajectory(runtime.log, chosen.id)) is None:
        return None
    return story(found, [g for g in grades if g.trajectory_id == chosen.id], rewards[chosen.id])
