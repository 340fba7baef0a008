"""What the demo prints: one line a fact, as it happens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from millstream.console import catalog
from millstream.console.decided import rollout_rows
from millstream.console.tables import gate_table, tally_words
from millstream.evidence import from_json
from millstream.examples.finqa.measuring import Measured
from millstream.grade import Failed, GradeGiven, Scored, Tally, first_line
from millstream.policy import GateDecided, PolicyLedger, Version
from millstream.ports import Log

Say = Callable[[str], None]

SHOWN = ("rollouts", "kept", "optimizer_steps", "nll", "kl_champion", "entropy")
"""Which figures of a training are printed; MLflow has all of them, step by step."""


class Teller:
    """Tells what is new in the log since it last looked, for one lineage at a time."""

    def __init__(self, log: Log, say: Say) -> None:
        self.log = log
        self.say = say
        self._told: set[str] = set()

    def round(self, number: int, lineage: str, version: Version, runs: int) -> None:
        """A round was played and worked off: its runs, grades, and what the buffer did."""
        name = f"round {number}"
        self.say(f"{name}: version {version.version} played {runs} runs, told by the SDK event by event")
        rows = [r for r in catalog.trajectories(self.log) if r.lineage == lineage and self._new(r.id)]
        statuses = ", ".join(f"{n} {status}" for status, n in Counter(row.status for row in rows).items())
        self.say(f"{name}: assembled {len(rows)} trajectories ({statuses})")
        ids = {row.id for row in rows}
        self._grades(name, [g for g in catalog.grades(self.log) if g.trajectory_id in ids])
        decided = [r for r in rollout_rows(self.log) if r.trajectory_id in ids and r.namespace == lineage]
        refused = Counter(r.reason for r in decided if r.decision == "refused")
        told = "; ".join(f"{n} {reason}" for reason, n in refused.items()) or "none"
        self.say(f"{name}: buffer took {len(decided) - refused.total()} rollouts, refused {refused.total()} ({told})")

    def _new(self, key: str) -> bool:
        new = key not in self._told
        self._told.add(key)
        return new

    def _grades(self, name: str, grades: Sequence[GradeGiven]) -> None:
        tally = Tally()
        for given in grades:
            tally.add(given.grade)
        self.say(f"{name}: {len(grades)} grades: {tally_words(tally)}")
        for kind in (Scored, Failed):
            example = next((g for g in grades if isinstance(g.grade, kind)), None)
            if example is not None:
                self.say(f"{name}:   for example {example.grader}: {_outcome(example)}")

    def trained(self, ledger: PolicyLedger, lineage: str, candidate: Version) -> None:
        """A training the stream asked for has made a candidate."""
        training = ledger.trainings[candidate.training_id]
        shown = ", ".join(f"{key} {training.metrics[key]:.4g}" for key in SHOWN if key in training.metrics)
        self.say(f"{lineage}: the stream asked for a training: {training.request.reason}")
        self.say(
            f"{lineage}: version {candidate.version} trained from version {candidate.parent} and registered in MLflow "
            f"(training {training.request.id[:12]}, manifest {training.manifest[:12]}; {shown})"
        )

    def judged(self, decided: GateDecided) -> None:
        """The gate decided: its table, its verdict and why."""
        evidence = from_json(decided.evidence)
        self.say(f"{decided.lineage}: gate, version {decided.version} against champion {decided.expected_champion}")
        for line in gate_table(evidence) if evidence else []:
            self.say(f"    {line}")
        self.say(f"{decided.lineage}: verdict on version {decided.version}: {decided.verdict.upper()}")
        for reason in decided.reasons:
            self.say(f"    {reason}")

    def alarms(self, ledger: PolicyLedger, lineage: str) -> None:
        """What the stream said of a reward since the last look, whose alarms stop no training."""
        for alarm in ledger.graders.alarms.values():
            if alarm.lineage == lineage and self._new(alarm.id):
                self.say(f"{lineage}: {alarm.alarm.upper()} ALARM, raised while it ran (here it stops nothing):")
                self.say(f"{lineage}:     {alarm.reason}")

    def measured(self, what: str, found: Measured) -> None:
        """A figure of the report set."""
        passes = "".join(f", pass@{k} {v:.3f}" for k, v in found.pass_at.items() if k > 1)
        self.say(
            f"report set, {what}: success {found.success:.3f} "
            f"(95 % {found.low:.3f} to {found.high:.3f}, {found.tasks} tasks{passes})"
        )


def _outcome(given: GradeGiven) -> str:
    grade = given.grade
    if isinstance(grade, Scored):
        return f"{grade.score:g}, {grade.reason or grade.label}"
    return f"failed ({grade.kind}), {first_line(grade.reason)}" if isinstance(grade, Failed) else grade.reason
