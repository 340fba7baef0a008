"""A small finished loop in a real log: eight graded runs, six admitted, a training, a gate, a promotion."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from millstream.adapters.clock import ManualClock
from millstream.adapters.sqlite import Embedded, open_sqlite
from millstream.evidence import GateEvidence, GateRow, PairedTest, to_json
from millstream.grade import GradeGiven, abstain, fail, score
from millstream.ledger import append_policy_events
from millstream.policy import (
    GateDecided,
    PolicyPromoted,
    PolicyRegistered,
    TrainingClaimed,
    TrainingFinished,
    TrainingRequested,
)
from millstream.ports import Log, Message
from millstream.rollout import (
    GradingFinished,
    Position,
    RolloutAdmitted,
    RolloutFacts,
    RolloutRefused,
    RolloutsAcknowledged,
    RolloutsLeased,
)
from millstream.topics import BUFFER_EVENTS, GRADES

START = 1_767_225_600_000
"""2026-01-01T00:00:00Z."""
MINUTE = 60_000

EVIDENCE = GateEvidence(
    lineage="policy",
    version=2,
    champion=1,
    temperature=0.7,
    gold="correct",
    test=PairedTest(
        method="McNemar mid-p",
        pairs=300,
        scored_pairs=299,
        worlds=30,
        wins=60,
        losses=10,
        ties=230,
        discordance=70 / 300,
        p_better=1e-7,
        p_worse=1.0,
        unscored_candidate=1,
        unscored_share=1 / 300,
    ),
    rows=(
        GateRow(
            name="gold",
            title="success (gold, pass@1)",
            champion=0.45,
            candidate=0.62,
            difference=1 / 6,
            low=0.1,
            high=0.23,
            bound=0.09,
            margin=0.0,
            state="better",
            decides=True,
        ),
        GateRow(
            name="cost_per_success",
            title="cost per success",
            unit="ratio",
            champion=2.0,
            candidate=None,
            margin=0.1,
            state="violated",
            note="infinite: no success of the candidate",
        ),
        GateRow(
            name="depth",
            title="reasoning depth of successes",
            unit="count",
            champion=3.0,
            candidate=3.5,
            difference=0.5,
        ),
    ),
)


def lines(*events: object) -> bytes:
    """Events as NDJSON."""
    return b"".join(msgspec.json.encode(event) + b"\n" for event in events)


def facts(index: int) -> RolloutFacts:
    """Four worlds of two runs each."""
    return RolloutFacts(
        task_id=f"task-{index // 2}", split="train", split_key=f"world-{index // 2}", lineage="policy", policy_version=1
    )


def grade_run(log: Log, index: int) -> None:
    """Runs 0–5 are scored (even ones right), 6 failed, 7 abstained."""
    grade = score(float(index % 2 == 0)) if index < 6 else fail("timed out", "timeout") if index == 6 else abstain("no")
    given = [
        GradeGiven(id=f"g{index}", trajectory_id=f"run-{index}", revision=1, grader="correct", epoch="e1", grade=grade),
        GradeGiven(
            id=f"f{index}", trajectory_id=f"run-{index}", revision=1, grader="format", epoch="e2", grade=score(0.75)
        ),
    ]
    finished = GradingFinished(
        trajectory_id=f"run-{index}",
        revision=1,
        content_hash="h",
        position=Position("t", 0, index),
        graders=("correct", "format"),
        grade_ids=(f"g{index}", f"f{index}"),
        facts=facts(index),
    )
    log.append(GRADES.name, [Message(f"run-{index}", lines(*given, finished), {"kind": "grades"})])


def admitted(index: int) -> RolloutAdmitted:
    """The admission of a run."""
    return RolloutAdmitted(
        id=f"a{index}",
        namespace="default",
        log_ms=START,
        rollout_id=f"r{index}",
        trajectory_id=f"run-{index}",
        trajectory_revision=1,
        content_hash="h",
        position=Position("t", 0, index),
        group=f"task-{index // 2}",
        reward=float(index % 2 == 0),
        advantage=0.5 if index % 2 == 0 else -0.5,
        priority=0.0,
        facts=facts(index),
        grade_ids=(f"g{index}", f"f{index}"),
        grader_epochs=("correct@e1", "format@e2"),
        formula="correct",
    )


def refused(index: int, reason: str) -> RolloutRefused:
    """The refusal of a run."""
    return RolloutRefused(
        id=f"x{index}",
        namespace="default",
        trajectory_id=f"run-{index}",
        trajectory_revision=1,
        group="g",
        reason=reason,
    )


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


@pytest.fixture
def embedded(tmp_path: Path, clock: ManualClock) -> Iterator[Embedded]:
    found = open_sqlite(tmp_path / "log.db", clock=clock)
    yield found
    found.close()


@pytest.fixture
def log(embedded: Embedded) -> Log:
    """An empty log."""
    return embedded.log


@pytest.fixture
def looped(log: Log, clock: ManualClock) -> Log:
    """The whole small loop, a minute between its parts."""
    append_policy_events(
        log,
        [
            PolicyRegistered(id="r1", lineage="policy", version=1, uri="base"),
            PolicyPromoted(id="p1", lineage="policy", version=1, expected_champion=None, reason="bootstrap"),
        ],
    )
    for index in range(8):
        grade_run(log, index)
    ids = tuple(f"r{i}" for i in range(6))
    held = {
        "training_id": "t2",
        "token": "k",
        "lineage": "policy",
        "parent": 1,
        "rollout_ids": ids,
        "namespace": "default",
    }
    log.append(
        BUFFER_EVENTS.name,
        [
            Message("d", lines(*(admitted(i) for i in range(6)), refused(6, "no_reward"), refused(7, "no_reward"))),
            Message("d", lines(RolloutsLeased(id="l", **held))),
        ],
    )
    clock.advance(MINUTE)
    append_policy_events(
        log,
        [
            TrainingRequested(
                id="t2",
                lineage="policy",
                parent=1,
                rollout_ids=ids,
                algorithm="sft",
                seed=7,
                namespace="default",
                reason="3 informative groups",
            ),
            TrainingClaimed(id="c2", lineage="policy", training_id="t2", token="k"),
            PolicyRegistered(id="r2", lineage="policy", version=2, uri="v2", parent=1, training_id="t2"),
            TrainingFinished(
                id="f2", lineage="policy", training_id="t2", token="k", version=2, manifest="m2", metrics={"loss": 0.5}
            ),
        ],
    )
    log.append(BUFFER_EVENTS.name, [Message("d", lines(RolloutsAcknowledged(id="k", **held)))])
    clock.advance(MINUTE)
    append_policy_events(
        log,
        [
            GateDecided(
                id="g2",
                lineage="policy",
                version=2,
                expected_champion=1,
                verdict="promote",
                reasons=("better: gold +16.7 points",),
                evidence=to_json(EVIDENCE),
            ),
            PolicyPromoted(id="p2", lineage="policy", version=2, expected_champion=1, reason="better", by="gate"),
        ],
    )
    return log


@pytest.fixture
def evidence() -> GateEvidence:
    return EVIDENCE
