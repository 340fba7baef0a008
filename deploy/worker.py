"""The gate worker: from `TrainingFinished` to `GateDecided` and, perhaps, `PolicyPromoted`.

It keeps no state: what waits to be judged follows from the ledger. Evaluations run beside the loop.
The decision and the promotion are one append, and both name the champion they expect: when the
champion moved while the tasks ran, the candidate is judged again, against the new one, on new tasks.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct, structs

from millstream.deploy import integrity
from millstream.deploy.archive import pack
from millstream.deploy.background import Background
from millstream.deploy.decision import Candidate, could_not_run, decision_events, request_for, seed_of, waits
from millstream.deploy.evaluation import EvaluationRequest, Evaluator, Outcomes, with_retries
from millstream.deploy.gate import GateContext, Judgement, judge
from millstream.deploy.integrity import ManifestFacts
from millstream.errors import MillstreamError, SettingsError
from millstream.failpoints import BEFORE_DECISION, reach
from millstream.ledger import LedgerReader, append_policy_events
from millstream.policy import Training
from millstream.ports import Log
from millstream.settings import GateSettings

_log = logging.getLogger(__name__)


class GateDoors(Struct, frozen=True, kw_only=True):
    """What the worker asks of the rest. ``gates``: the gate that stands before (lineage, version), or
    None; ``files``: a version's folder; ``manifests``: what a training's manifest says, or None; ``keep``
    stores what a decision was made from and names it.
    """

    evaluator: Evaluator
    gates: Callable[[str, int], GateSettings | None]
    files: Callable[[str, int], Path]
    manifests: Callable[[Training], ManifestFacts | None]
    keep: Callable[[bytes], str] = lambda _: ""


class GateWorker:
    """Judges candidates one at a time, oldest first. ``tries``: how often an evaluation that could
    not run is tried before the verdict is *inconclusive*; ``clock``: seconds, for the waits between.
    """

    name = "gate"

    def __init__(
        self, log: Log, doors: GateDoors, *, tries: int = 3, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.log = log
        self.doors = doors
        self.tries = tries
        self.clock = clock
        self.reader = LedgerReader(log)
        self._job: tuple[Candidate, Background[Judgement]] | None = None
        self._failures: dict[Candidate, tuple[int, float]] = {}

    @property
    def busy(self) -> bool:
        """Whether an evaluation runs now."""
        return self._job is not None

    def step(self) -> bool:
        """Go on as far as is possible without waiting; True when something was begun or decided."""
        if self._job is not None:
            candidate, work = self._job
            if work.running:
                return False
            self._job = None
            return self._finish(candidate, work)
        ready = self._ready()
        if ready:
            self._begin(ready[0])
        return bool(ready)

    def pending(self) -> list[Candidate]:
        """What waits for its gate, oldest version first."""
        ledger = self.reader.refresh()
        return [
            Candidate(lineage.name, version.version, lineage.champion)
            for lineage in ledger.lineages.values()
            for version in sorted(lineage.versions.values(), key=lambda v: v.version)
            if lineage.champion is not None
            and waits(ledger, lineage.name, version)
            and self.doors.gates(lineage.name, version.version) is not None
        ]

    def judge(self, lineage: str, version: int, *, dry_run: bool = False) -> Judgement:
        """Judge a version now, waiting for it; without ``dry_run`` the decision is written. Raises
        `SettingsError` when there is no such version or nothing to compare it with.
        """
        found = self.reader.refresh().lineages.get(lineage)
        if found is None or version not in found.versions:
            raise SettingsError(f"lineage {lineage!r} has no version {version}; see `millstream policies list`")
        if found.champion is None or found.champion == version:
            raise SettingsError(f"version {version} of {lineage!r} has no other champion to be judged against")
        candidate = Candidate(lineage, version, found.champion)
        judgement = self._work(candidate)()
        if not dry_run:
            self._decide(candidate, judgement)
        return judgement

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait until the running evaluation ends, or so long."""
        if self._job is not None:
            self._job[1].wait(timeout_s)

    def _begin(self, candidate: Candidate) -> None:
        try:
            work = self._work(candidate)
        except MillstreamError as error:
            self._failed(candidate, error)
        else:
            self._job = (candidate, Background(work, f"gate-{candidate.version}"))

    def _ready(self) -> list[Candidate]:
        now = self.clock()
        return [c for c in self.pending() if self._failures.get(c, (0, now))[1] <= now]

    def _work(self, candidate: Candidate) -> Callable[[], Judgement]:
        """Everything the evaluation needs, read now; the rest may run beside the loop."""
        settings = self.doors.gates(candidate.lineage, candidate.version) or GateSettings()
        requests = [
            request_for(candidate, settings, number, str(self.doors.files(candidate.lineage, number)))
            for number in (candidate.champion, candidate.version)
        ]
        context = GateContext(
            lineage=candidate.lineage,
            version=candidate.version,
            champion=candidate.champion,
            seed=seed_of(candidate),
            integrity=(*integrity.unfit_gold(self.reader.ledger.graders, settings.gold), *self._integrity(candidate)),
        )

        def work() -> Judgement:
            champion, challenger = self._evaluate(requests, context)
            judged = judge(champion, challenger, settings, context)
            kept = self.doors.keep(pack(champion, challenger, settings, context)) if champion else ""
            return structs.replace(judged, evidence=structs.replace(judged.evidence, archive=kept))

        return work

    def _evaluate(self, requests: list[EvaluationRequest], context: GateContext) -> tuple[Outcomes, Outcomes]:
        if context.integrity:
            return (), ()
        champion, candidate = with_retries(self.doors.evaluator, requests)
        return champion, candidate

    def _integrity(self, candidate: Candidate) -> tuple[str, ...]:
        ledger = self.reader.ledger
        versions = ledger.lineage(candidate.lineage).versions
        training = ledger.trainings.get(versions[candidate.version].training_id)
        if training is None:
            return (f"version {candidate.version} comes from no training that the log knows",)
        before = ledger.trainings.get(versions[candidate.champion].training_id)
        serving = self.doors.manifests(before) if before is not None else None
        manifest = self.doors.manifests(training)
        admitted = integrity.admitted_facts(self.log, training.request.rollout_ids)
        return integrity.problems(training, manifest, admitted, (serving or manifest or ManifestFacts()).interface)

    def _finish(self, candidate: Candidate, work: Background[Judgement]) -> bool:
        try:
            judgement = work.result()
        except Exception as error:  # noqa: BLE001 — the operator's evaluation may raise anything
            self._failed(candidate, error)
        else:
            self._failures.pop(candidate, None)
            self._decide(candidate, judgement)
        return True

    def _failed(self, candidate: Candidate, error: Exception) -> None:
        """Try again later; after the last try the verdict is that nothing was proven."""
        count = self._failures.get(candidate, (0, 0.0))[0] + 1
        _log.warning("the evaluation of %s %s failed: %s", candidate.lineage, candidate.version, error)
        self._failures[candidate] = (count, self.clock() + 2.0**count)
        if count >= self.tries:
            self._failures.pop(candidate)
            self._decide(candidate, could_not_run(candidate, count, error))

    def _decide(self, candidate: Candidate, judgement: Judgement) -> bool:
        """Write the decision unless the champion moved; whether it was written."""
        if self.reader.refresh().lineage(candidate.lineage).champion != candidate.champion:
            _log.info("the champion of %s moved: version %s is judged again", candidate.lineage, candidate.version)
            return False
        reach(BEFORE_DECISION)
        append_policy_events(self.log, decision_events(candidate, judgement))
        self.reader.refresh()
        return True
