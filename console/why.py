"""``why VERSION``: everything that made a version what it is, from the log alone – the runs it learned
from, how they were graded and by which epochs, what the buffer decided, the training, the gate's
evidence, and when it served.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from msgspec import Struct, field, structs

from millstream.console.catalog import decisions, grade_events, policy_events
from millstream.console.live import Service, services
from millstream.errors import SettingsError
from millstream.grade import GradeGiven, Tally
from millstream.grader_events import AlarmCleared, AlarmRaised
from millstream.policy import GateDecided, PolicyLedger, Training, Version
from millstream.ports import Log
from millstream.recalls import Recalls
from millstream.rollout import (
    BufferDecision,
    GroupClosed,
    Position,
    RolloutAdmitted,
    RolloutId,
    RolloutRefused,
)


class DecisionLine(Struct, frozen=True, kw_only=True):
    """A decision of the buffer about one rollout."""

    kind: str
    log_ms: int
    reason: str = ""


class WhyRollout(Struct, frozen=True, kw_only=True):
    """One rollout that the version learned from. ``admitted`` False: the log no longer has its admission."""

    rollout_id: RolloutId
    trajectory_id: str = ""
    revision: int = 0
    task_id: str = ""
    split: str = ""
    group: str = ""
    policy_version: int | None = None
    reward: float | None = None
    advantage: float | None = None
    formula: str = ""
    position: Position | None = None
    grades: tuple[GradeGiven, ...] = ()
    decisions: tuple[DecisionLine, ...] = ()
    admitted: bool = True
    recalled: str = ""
    """Why it would not be admitted now: the run, or a grade that it rests on, was recalled since."""
    since: str = ""
    """What the buffer decided of its run after it, by later feedback, another grade or a corrected mapping."""


class WhyTraining(Struct, frozen=True, kw_only=True):
    """The training that made the version."""

    id: str
    state: str
    algorithm: str
    seed: int
    namespace: str
    requested_ms: int
    reason: str
    start_from: int | None
    manifest: str
    metrics: dict[str, float] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)


class Why(Struct, frozen=True, kw_only=True):
    """The whole answer. ``epochs``: how many of the grades came from each ``grader@epoch``;
    ``refused``: what the same buffer namespace refused, by reason. ``alarms``: those that its own
    runs raised, ``cleared`` what ended them.
    """

    lineage: str
    version: Version
    training: WhyTraining | None
    rollouts: tuple[WhyRollout, ...]
    tally: Tally
    epochs: dict[str, int]
    refused: dict[str, int]
    gates: tuple[GateDecided, ...]
    served: tuple[Service, ...]
    alarms: tuple[AlarmRaised, ...] = ()
    cleared: tuple[AlarmCleared, ...] = ()


def why(log: Log, version: int, lineage: str) -> Why:
    """Explain a version. Raises `SettingsError` naming the versions that are there."""
    ledger = PolicyLedger()
    for event in policy_events(log):
        ledger.apply(event)
    found, book = _find(ledger, lineage, version), ledger.graders
    training = ledger.trainings.get(found.training_id)
    wanted = training.request.rollout_ids if training else ()
    namespace = training.request.namespace if training else ""
    admitted, told, refused = _decisions(log, set(wanted), namespace)
    later = _later(log, admitted, namespace)
    grades = _grades(log, {a.trajectory_id for a in admitted.values()})
    found_rollouts = (_rollout(i, admitted.get(i), told[i], grades, ledger.recalls) for i in wanted)
    rollouts = tuple(structs.replace(one, since=later.get(one.trajectory_id, "")) for one in found_rollouts)
    used = [grade for rollout in rollouts for grade in rollout.grades]
    tally = Tally()
    for given in used:
        tally.add(given.grade)
    return Why(
        lineage=lineage,
        version=found,
        training=_training(training) if training else None,
        rollouts=rollouts,
        tally=tally,
        epochs=dict(sorted(Counter(map(_epoch, used)).items())),
        refused=refused,
        gates=tuple(ledger.gates.get((lineage, version), ())),
        served=tuple(s for s in services(log) if (s.lineage, s.version) == (lineage, version)),
        alarms=(alarms := tuple(a for a in book.alarms.values() if (a.lineage, a.version) == (lineage, version))),
        cleared=tuple(book.cleared[a.id] for a in alarms if a.id in book.cleared),
    )


def _epoch(given: GradeGiven) -> str:
    """The epoch of a grade, which names its grader."""
    return given.epoch if given.epoch.startswith(f"{given.grader}@") else f"{given.grader}@{given.epoch}"


def _find(ledger: PolicyLedger, lineage: str, version: int) -> Version:
    known = ledger.lineages.get(lineage)
    if known is None:
        names = ", ".join(sorted(ledger.lineages)) or "none yet; set [policy] base and run `millstream up`"
        raise SettingsError(f"no lineage {lineage!r}; known: {names}")
    if version not in known.versions:
        numbers = ", ".join(map(str, sorted(known.versions))) or "none"
        raise SettingsError(f"lineage {lineage!r} has no version {version}; known: {numbers}")
    return known.versions[version]


def _training(training: Training) -> WhyTraining:
    request = training.request
    return WhyTraining(
        id=request.id,
        state=training.state,
        algorithm=request.algorithm,
        seed=request.seed,
        namespace=request.namespace,
        requested_ms=request.log_ms,
        reason=request.reason,
        start_from=request.start_from,
        manifest=training.manifest,
        metrics=training.metrics,
        settings=request.settings,
    )


_Told = dict[RolloutId, list[DecisionLine]]


def _decisions(
    log: Log, wanted: set[RolloutId], namespace: str
) -> tuple[dict[RolloutId, RolloutAdmitted], _Told, dict[str, int]]:
    admitted: dict[RolloutId, RolloutAdmitted] = {}
    told: _Told = defaultdict(list)
    refused: Counter[str] = Counter()
    for decision in decisions(log):
        if isinstance(decision, RolloutRefused):
            refused[decision.reason] += decision.namespace == namespace
            continue
        for rollout_id in _about(decision, wanted):
            told[rollout_id].append(_line(decision))
        if isinstance(decision, RolloutAdmitted) and decision.rollout_id in wanted:
            admitted[decision.rollout_id] = decision
    return admitted, told, {reason: n for reason, n in sorted(refused.items()) if n}


def _later(log: Log, admitted: dict[RolloutId, RolloutAdmitted], namespace: str) -> dict[str, str]:
    """What the buffer says of these runs now, where that is not what the version learned from."""
    mine = {one.trajectory_id: one for one in admitted.values()}
    found: dict[str, str] = {}
    for decision in decisions(log):
        if not isinstance(decision, RolloutAdmitted | RolloutRefused) or decision.namespace != namespace:
            continue
        used = mine.get(decision.trajectory_id)
        if used is None or decision.log_ms < used.log_ms:
            continue
        if isinstance(decision, RolloutRefused):
            found[decision.trajectory_id] = f"refused: {decision.reason}"
        elif (decision.reward, decision.trajectory_revision) == (used.reward, used.trajectory_revision):
            found.pop(decision.trajectory_id, None)
        else:
            revision = f", revision {decision.trajectory_revision}"
            changed = decision.trajectory_revision != used.trajectory_revision
            found[decision.trajectory_id] = f"reward {decision.reward:g}{revision if changed else ''}"
    return found


def _about(decision: BufferDecision, wanted: set[RolloutId]) -> list[RolloutId]:
    if isinstance(decision, RolloutAdmitted):
        return [decision.rollout_id] if decision.rollout_id in wanted else []
    if isinstance(decision, GroupClosed | RolloutRefused):
        return []
    return [rollout_id for rollout_id in decision.rollout_ids if rollout_id in wanted]


def _line(decision: BufferDecision) -> DecisionLine:
    reason = getattr(decision, "reason", "") or getattr(decision, "training_id", "")
    return DecisionLine(kind=type(decision).__name__, log_ms=decision.log_ms, reason=str(reason))


def _grades(log: Log, trajectories: set[str]) -> dict[tuple[str, str], GradeGiven]:
    """Every grade of these runs, by trajectory and grade id."""
    found: dict[tuple[str, str], GradeGiven] = {}
    if trajectories:
        for event in grade_events(log):
            if isinstance(event, GradeGiven) and event.trajectory_id in trajectories:
                found[event.trajectory_id, event.id] = event
    return found


def _rollout(
    rollout_id: RolloutId,
    admitted: RolloutAdmitted | None,
    told: list[DecisionLine],
    grades: dict[tuple[str, str], GradeGiven],
    recalls: Recalls,
) -> WhyRollout:
    if admitted is None:
        return WhyRollout(rollout_id=rollout_id, decisions=tuple(told), admitted=False)
    keys = [(admitted.trajectory_id, grade_id) for grade_id in admitted.grade_ids]
    used = tuple(grades[key] for key in keys if key in grades)
    taken = recalls.takes(admitted.trajectory_id) or next(
        (found for g in used if (found := recalls.covers(g.grader, g.epoch, g.known_ms))), None
    )
    return WhyRollout(
        rollout_id=rollout_id,
        trajectory_id=admitted.trajectory_id,
        revision=admitted.trajectory_revision,
        task_id=admitted.facts.task_id,
        split=admitted.facts.split or "",
        group=admitted.group,
        policy_version=admitted.facts.policy_version,
        reward=admitted.reward,
        advantage=admitted.advantage,
        formula=admitted.formula,
        position=admitted.position,
        grades=used,
        decisions=tuple(told),
        recalled=taken.reason if taken else "",
    )
