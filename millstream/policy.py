"""Policies: the events of ``policy-events`` and the fold that says what stands.

Every decision about a policy is an event; MLflow aliases, `status` and `why` are projections of
`PolicyLedger`, which any process can rebuild from the topic.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from msgspec import Struct, field

from millstream.grader_events import AlarmCleared, AlarmRaised, GraderBook, GraderExamined
from millstream.policy_event import PolicyEvent
from millstream.recalls import EvidenceRecalled, RecallLifted, Recalls
from millstream.rollout import RolloutId

Stage: TypeAlias = Literal["candidate", "challenger", "champion", "retired", "quarantined"]
BY_GATE = "gate"
"""Who promoted, where it was the gate."""
Verdict: TypeAlias = Literal["promote", "refuse", "inconclusive"]


class PolicyRegistered(PolicyEvent, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """A version exists: where its files are and where it came from (version 1 has no parent). ``uri``: their folder,
    relative to the data directory; absolute where they are not in there. The registry says where they are now.
    """

    version: int
    uri: str
    parent: int | None = None
    training_id: str = ""
    run_id: str = ""
    content_hash: str = ""


class TrainingRequested(PolicyEvent, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Train this parent on these rollouts, in this order. ``id`` = hash(lineage, parent, rollout ids,
    algorithm, start_from).
    """

    parent: int
    rollout_ids: tuple[RolloutId, ...]
    algorithm: str
    seed: int
    namespace: str
    reason: str
    start_from: int | None = None
    settings: dict[str, Any] = field(default_factory=dict)


class TrainingClaimed(PolicyEvent, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """A worker took a training. A claim stands until it ends or its heartbeat is older than ``timeout_ms``: the
    claim says so itself, so that every fold agrees whatever its settings (0: the fold's own).
    """

    training_id: str
    token: str
    worker: str = ""
    timeout_ms: int = 0


class TrainingHeartbeat(PolicyEvent, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """The claim's owner is alive."""

    training_id: str
    token: str


class TrainingFinished(PolicyEvent, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """A training made a version. The first with a standing token counts; stale tokens are ignored."""

    training_id: str
    token: str
    version: int
    manifest: str
    metrics: dict[str, float] = field(default_factory=dict)


class TrainingFailed(PolicyEvent, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """A training ended without a version."""

    training_id: str
    token: str
    reason: str


class GateDecided(PolicyEvent, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """The gate judged a candidate. ``evidence`` holds the table it decided from."""

    version: int
    expected_champion: int
    verdict: Verdict
    reasons: tuple[str, ...]
    evidence: dict[str, Any] = field(default_factory=dict)


class PolicyPromoted(PolicyEvent, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """A version serves from here on; ignored when ``expected_champion`` is not current, or when a gate that
    did not know of a recall promotes what is quarantined.
    """

    version: int
    expected_champion: int | None
    reason: str
    by: str = ""


class PolicyRolledBack(PolicyEvent, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """An earlier version serves again; ignored when ``expected_champion`` is not current."""

    version: int
    expected_champion: int
    reason: str
    by: str = ""


class PolicyRetired(PolicyEvent, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """A version will not serve again (unless promoted by hand)."""

    version: int
    reason: str


AnyPolicyEvent: TypeAlias = (
    PolicyRegistered
    | TrainingRequested
    | TrainingClaimed
    | TrainingHeartbeat
    | TrainingFinished
    | TrainingFailed
    | GateDecided
    | PolicyPromoted
    | PolicyRolledBack
    | PolicyRetired
    | GraderExamined
    | AlarmRaised
    | AlarmCleared
    | EvidenceRecalled
    | RecallLifted
)


class Version(Struct, kw_only=True):
    """One policy version as the ledger sees it."""

    version: int
    uri: str
    parent: int | None
    training_id: str
    run_id: str = ""
    content_hash: str = ""
    stage: Stage = "candidate"
    verdict: Verdict | None = None
    registered_ms: int = 0
    quarantined: str = ""
    """Why nothing should rest on it: it learned from evidence that was recalled."""
    quarantines: dict[str, str] = field(default_factory=dict)
    """recall id → reason, of every recall that quarantines it."""


class Training(Struct, kw_only=True):
    """One training as the ledger sees it."""

    request: TrainingRequested
    state: Literal["requested", "claimed", "finished", "failed"] = "requested"
    token: str = ""
    worker: str = ""
    beat_ms: int = 0
    timeout_ms: int = 0
    version: int | None = None
    manifest: str = ""
    failure: str = ""
    recalled: str = ""
    """Why what it makes is quarantined: it was asked to learn from evidence that was recalled since."""
    recalls: dict[str, str] = field(default_factory=dict)
    """recall id → reason, of every recall of what it was asked to learn from."""
    metrics: dict[str, float] = field(default_factory=dict)


class Lineage(Struct, kw_only=True):
    """The versions of one lineage and which of them serves."""

    name: str
    champion: int | None = None
    previous: int | None = None
    versions: dict[int, Version] = field(default_factory=dict)
    history: list[tuple[int, int]] = field(default_factory=list)
    """(log_ms, version) of every change of champion, oldest first."""


class PolicyLedger(Struct, kw_only=True):
    """The fold of ``policy-events``. ``claim_timeout_ms``: a claim that does not say how old its heartbeat may be
    may be taken over when it is older than this, by log time.
    """

    claim_timeout_ms: int = 60_000
    lineages: dict[str, Lineage] = field(default_factory=dict)
    trainings: dict[str, Training] = field(default_factory=dict)
    gates: dict[tuple[str, int], list[GateDecided]] = field(default_factory=dict)
    graders: GraderBook = field(default_factory=GraderBook)
    recalls: Recalls = field(default_factory=Recalls)
    ignored: int = 0

    def lineage(self, name: str) -> Lineage:
        """The lineage, made when it is new."""
        return self.lineages.setdefault(name, Lineage(name=name))

    def champion(self, name: str) -> Version | None:
        """The serving version of a lineage, or None."""
        lineage = self.lineages.get(name)
        return lineage.versions.get(lineage.champion) if lineage and lineage.champion else None

    def apply(self, event: AnyPolicyEvent) -> bool:
        """Fold one event in; False when it does not count (stale token, lost race, repeated)."""
        if isinstance(event, GraderExamined | AlarmRaised | AlarmCleared):
            counted = self.graders.apply(event)
        else:
            counted = bool(getattr(self, "_" + type(event).__name__)(event))
        self.ignored += not counted
        return counted

    def _PolicyRegistered(self, e: PolicyRegistered) -> bool:  # noqa: N802 — named after its event
        versions = self.lineage(e.lineage).versions
        if e.version in versions:
            return False
        versions[e.version] = Version(
            version=e.version,
            uri=e.uri,
            parent=e.parent,
            training_id=e.training_id,
            run_id=e.run_id,
            content_hash=e.content_hash,
            registered_ms=e.log_ms,
        )
        self._quarantine(versions[e.version], self._tainted(e))
        return True

    def _tainted(self, e: PolicyRegistered) -> dict[str, str]:
        """The recalls for which a version that is registered now is quarantined from the start."""
        training = self.trainings.get(e.training_id)
        parent = self.lineage(e.lineage).versions.get(e.parent or 0)
        passed = (
            {i: f"started from version {parent.version}: {told}" for i, told in parent.quarantines.items()}
            if parent
            else {}
        )
        return {**passed, **(training.recalls if training else {})}

    def _quarantine(self, version: Version, recalls: dict[str, str]) -> None:
        """Mark a version; the champion goes on serving until somebody decides otherwise."""
        version.quarantines = {**recalls, **version.quarantines}
        version.quarantined = next(iter(version.quarantines.values()), "")
        if version.quarantined and version.stage != "champion":
            version.stage = "quarantined"

    def _EvidenceRecalled(self, e: EvidenceRecalled) -> bool:  # noqa: N802
        recall = e.recall
        if not self.recalls.add(recall) and not (e.versions or e.trainings):
            return False
        for number in e.versions:
            if (version := self.lineage(e.lineage).versions.get(number)) is not None:
                self._quarantine(version, {recall.id: e.reason})
        for training_id in e.trainings:
            if (training := self.trainings.get(training_id)) is not None:
                training.recalls[recall.id] = e.reason
                training.recalled = next(iter(training.recalls.values()))
        return True

    def _RecallLifted(self, e: RecallLifted) -> bool:  # noqa: N802
        lifted = self.recalls.lift(e.recall_id)
        lineage = self.lineage(e.lineage)
        for version in lineage.versions.values():
            if version.quarantines.pop(e.recall_id, None) is not None:
                lifted = True
                version.quarantined = next(iter(version.quarantines.values()), "")
                if not version.quarantined and version.stage == "quarantined":
                    version.stage = "retired" if any(n == version.version for _, n in lineage.history) else "candidate"
        for training in self.trainings.values():
            if training.recalls.pop(e.recall_id, None) is not None:
                training.recalled = next(iter(training.recalls.values()), "")
        return lifted

    def _TrainingRequested(self, e: TrainingRequested) -> bool:  # noqa: N802
        if e.id in self.trainings:
            return False
        self.trainings[e.id] = Training(request=e)
        return True

    def _TrainingClaimed(self, e: TrainingClaimed) -> bool:  # noqa: N802
        training = self.trainings.get(e.training_id)
        if training is None or training.state in ("finished", "failed"):
            return False
        if training.state == "claimed" and e.log_ms - training.beat_ms < self.timeout_ms(training):
            return False
        training.state, training.token, training.worker, training.beat_ms = "claimed", e.token, e.worker, e.log_ms
        training.timeout_ms = e.timeout_ms
        return True

    def timeout_ms(self, training: Training) -> int:
        """How old the heartbeat of a claimed training may be."""
        return training.timeout_ms or self.claim_timeout_ms

    def _TrainingHeartbeat(self, e: TrainingHeartbeat) -> bool:  # noqa: N802
        training = self._standing(e.training_id, e.token)
        if training is None:
            return False
        training.beat_ms = e.log_ms
        return True

    def _TrainingFinished(self, e: TrainingFinished) -> bool:  # noqa: N802
        training = self._standing(e.training_id, e.token)
        if training is None:
            return False
        training.state, training.version, training.manifest = "finished", e.version, e.manifest
        training.metrics = e.metrics
        return True

    def _TrainingFailed(self, e: TrainingFailed) -> bool:  # noqa: N802
        training = self._standing(e.training_id, e.token)
        if training is None:
            return False
        training.state, training.failure = "failed", e.reason
        return True

    def _GateDecided(self, e: GateDecided) -> bool:  # noqa: N802
        version = self.lineage(e.lineage).versions.get(e.version)
        decided = self.gates.setdefault((e.lineage, e.version), [])
        if version is None or any(g.id == e.id for g in decided):
            return False
        decided.append(e)
        version.verdict = e.verdict
        return True

    def _PolicyPromoted(self, e: PolicyPromoted) -> bool:  # noqa: N802
        version = self.lineage(e.lineage).versions.get(e.version)
        if version is not None and version.quarantined and e.by == BY_GATE:
            return False
        return self._serve(e.lineage, e.version, e.expected_champion, e.log_ms)

    def _PolicyRolledBack(self, e: PolicyRolledBack) -> bool:  # noqa: N802
        return self._serve(e.lineage, e.version, e.expected_champion, e.log_ms)

    def _PolicyRetired(self, e: PolicyRetired) -> bool:  # noqa: N802
        lineage = self.lineage(e.lineage)
        version = lineage.versions.get(e.version)
        if version is None or lineage.champion == e.version:
            return False
        version.stage = "retired"
        return True

    def _standing(self, training_id: str, token: str) -> Training | None:
        training = self.trainings.get(training_id)
        if training is None or training.state != "claimed" or training.token != token:
            return None
        return training

    def _serve(self, name: str, number: int, expected: int | None, log_ms: int) -> bool:
        lineage = self.lineage(name)
        if number not in lineage.versions or lineage.champion != expected or lineage.champion == number:
            return False
        if lineage.champion is not None:
            before = lineage.versions[lineage.champion]
            before.stage = "quarantined" if before.quarantined else "retired"
        lineage.previous, lineage.champion = lineage.champion, number
        lineage.versions[number].stage = "champion"
        lineage.history.append((log_ms, number))
        return True

    def live_at(self, name: str, log_ms: int) -> int | None:
        """The version that served at a log time, or None before the first."""
        lineage = self.lineages.get(name)
        served = [v for t, v in lineage.history if t <= log_ms] if lineage else []
        return served[-1] if served else None
