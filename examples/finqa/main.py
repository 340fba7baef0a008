"""``millstream demo``: run it, gather what it found, write the report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from millstream.console import catalog
from millstream.console.audit import audit
from millstream.console.decided import rollout_rows
from millstream.console.report_alarms import of_book
from millstream.evidence import GateRow, from_json
from millstream.examples.finqa.demo import Demo
from millstream.examples.finqa.facts import (
    AlarmFact,
    CandidateFact,
    ControlFact,
    DemoFacts,
    GradesFact,
    HackFact,
    VersionFact,
)
from millstream.examples.finqa.measuring import Measured
from millstream.examples.finqa.plans import HACK, LINEAGE, write_settings
from millstream.examples.finqa.showing import write_report
from millstream.grade import Tally
from millstream.policy import GateDecided, PolicyLedger

CATCH_UP_S = 30.0


def run(folder: Path, seed: int, say: Callable[[str], None]) -> DemoFacts:
    """The demo in ``folder``: prints its facts as they come, and returns them."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = write_settings(folder)
    say("Millstream demo: an agent answers questions about generated (synthetic) company reports with the tools")
    say("search, load and calculator. Its policy, a tiny Llama, learns from its own graded runs.")
    say(f"Everything goes into {folder}; seed {seed}; no service, no GPU, nothing leaves this machine.")
    demo = Demo(settings, seed, lambda line: say(f"[{demo.seconds:4.0f} s] {line}"))
    try:
        demo.run()
        facts = _facts(demo, folder, seed)
        _close(demo, facts, say)
        facts = msgspec.structs.replace(
            facts, report=str(write_report(demo.runtime, facts, folder)), seconds=demo.seconds
        )
    finally:
        demo.runtime.close()
    _goodbye(facts, settings, say)
    return facts


def _facts(demo: Demo, folder: Path, seed: int) -> DemoFacts:
    ledger = demo.ledger()
    runtime = demo.runtime
    books = audit(runtime.log, runtime.store, runtime.loaded.settings, wait_s=CATCH_UP_S)
    tally = Tally()
    grades = catalog.grades(runtime.log)
    for given in grades:
        tally.add(given.grade)
    rows = rollout_rows(runtime.log)
    return DemoFacts(
        seed=seed,
        versions=_versions(demo, ledger),
        candidates=[
            CandidateFact(version=g.version, verdict=g.verdict, reasons=g.reasons) for g in _gates(ledger, LINEAGE)
        ],
        hack=_hack(ledger),
        control=_control(demo.control.result() if demo.control else None),
        alarms=[
            AlarmFact(
                id=one.id,
                lineage=one.lineage,
                alarm=one.alarm,
                version=one.version,
                reason=one.reason,
                stops=one.stops,
            )
            for one in of_book(ledger.graders)
        ],
        grades=GradesFact(scored=tally.scored, failed=tally.failed, abstained=tally.abstained, censored=tally.censored),
        audit={
            "balanced": books.balanced and books.caught_up,
            "caught_up": books.caught_up,
            "lines": msgspec.to_builtins(books.lines),
            "differences": msgspec.to_builtins(books.differences),
        },
        funnel={
            "events": sum(line.count for line in books.lines if line.section == "events"),
            "trajectories": books.count("trajectories", "sealed"),
            "grades": len(grades),
            "admitted": sum(row.decision != "refused" for row in rows),
            "refused": sum(row.decision == "refused" and row.reason != "wrong_lineage" for row in rows),
            "trained": len({i for t in ledger.trainings.values() for i in t.request.rollout_ids}),
        },
        folder=str(folder),
        seconds=demo.seconds,
    )


def _versions(demo: Demo, ledger: PolicyLedger) -> list[VersionFact]:
    promoted = [number for _, number in ledger.lineage(LINEAGE).history]
    facts = []
    for number in promoted:
        sampled = demo.measured.get(f"last-{number}") or demo.measured[f"sampled-{number}"]
        greedy = demo.measured.get(f"greedy-{number}")
        found = sampled.result()
        facts.append(
            VersionFact(
                version=number,
                report_success=found.success,
                report_ci=(found.low, found.high),
                greedy=greedy.result().success if greedy else None,
                pass_at_4=found.pass_at.get(4),
                promoted=number != promoted[0],
            )
        )
    return facts


def _gates(ledger: PolicyLedger, lineage: str) -> list[GateDecided]:
    return [gate for (name, _), gates in ledger.gates.items() if name == lineage for gate in gates]


def _hack(ledger: PolicyLedger) -> HackFact | None:
    gates = _gates(ledger, HACK)
    evidence = from_json(gates[-1].evidence) if gates else None
    proxy, gold = (evidence.row("proxy"), evidence.row("gold")) if evidence else (None, None)
    if proxy is None or gold is None:
        return None
    return HackFact(
        proxy=(proxy.champion or 0.0, proxy.candidate or 0.0),
        gold=(gold.champion or 0.0, gold.candidate or 0.0),
        verdict=gates[-1].verdict,
        reasons=gates[-1].reasons,
        occurred=_above(proxy) and _below(gold),
    )


def _above(row: GateRow) -> bool:
    return row.low is not None and row.low > 0


def _below(row: GateRow) -> bool:
    return row.high is not None and row.high < 0


def _control(found: Measured | None) -> ControlFact | None:
    return ControlFact(report_success=found.success, report_ci=(found.low, found.high)) if found else None


def _close(demo: Demo, facts: DemoFacts, say: Callable[[str], None]) -> None:
    for key, future in demo.measured.items():
        if key.startswith("sampled") and key.replace("sampled", "last") in demo.measured:
            continue
        demo.teller.measured(
            f"version {key.split('-')[1]}{', greedy' if key.startswith('greedy') else ''}", future.result()
        )
    if facts.control:
        low, high = facts.control.report_ci
        say(
            f"report set, control arm (the same rollouts, selected at random): success "
            f"{facts.control.report_success:.3f} (95 % {low:.3f} to {high:.3f})"
        )
    if facts.hack is None or not facts.hack.occurred:
        say("the reward hack did not occur for this seed: the proxy did not clearly rise while gold fell")
    else:
        proxy, gold = facts.hack.proxy, facts.hack.gold
        say(
            f"the reward hack: its proxy went {proxy[0]:.3f} → {proxy[1]:.3f} while gold went "
            f"{gold[0]:.3f} → {gold[1]:.3f}; verdict {facts.hack.verdict.upper()}"
        )
    grades = facts.grades
    say(
        f"grades: {grades.scored} scored, {grades.failed} failed (none became a reward), "
        f"{grades.abstained} abstained, {grades.censored} censored"
    )
    steps = " → ".join(f"{count:,} {name}" for name, count in facts.funnel.items() if name != "refused")
    say(f"funnel: {steps} ({facts.funnel['refused']} refused, with their reasons)")
    say(f"audit: {'balanced' if facts.audit['balanced'] else 'NOT balanced'}")


def _goodbye(facts: DemoFacts, settings: Path, say: Callable[[str], None]) -> None:
    champion = facts.versions[-1]
    base = facts.versions[0]
    say(
        f"success on the report set: {base.report_success:.3f} → {champion.report_success:.3f} "
        f"in {len(facts.candidates)} candidates, {len(facts.versions) - 1} promoted, {facts.seconds:.0f} s"
    )
    say(f"report: {facts.report}")
    say("look further:")
    say(f"  millstream --settings {settings} why {champion.version}")
    say(f"  millstream --settings {settings} trajectories list --limit 10")
    say(f"  mlflow ui --backend-store-uri sqlite:///{Path(facts.folder).resolve()}/mlflow.db")
