"""A desk on which tests write the records that the buffering stage and the trigger read."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pytest

from millstream.codec import digest
from millstream.grade import GradeGiven, fail, score
from millstream.ports import Record
from millstream.rollout import BufferDecision, GradingFinished, Position, RolloutFacts
from millstream.settings import BufferSettings, RewardSettings
from millstream.streams.buffer_state import BufferLedger
from millstream.streams.buffering import BufferingStage

_DECISIONS = msgspec.json.Decoder(BufferDecision)


class Desk:
    """Numbers the records it makes and folds what the stage answers."""

    def __init__(self):
        self.offset = 0
        self.ms = 1_000_000

    def stage(self, reward="correct", namespace="default", **settings):
        kwargs = {k: settings.pop(k) for k in ("interface", "lineages", "forget_s") if k in settings}
        settings.setdefault("near_duplicate", 1.0)
        return BufferingStage(
            BufferSettings(namespace=namespace, **settings), RewardSettings(formula=reward, low=-10, high=10), **kwargs
        )

    def record(self, *items, topic="grades", ms=None):
        self.ms = self.ms + 1 if ms is None else ms
        self.offset += 1
        value = b"\n".join(msgspec.json.encode(item) for item in items)
        return Record(topic, 0, self.offset, self.ms, "k", value)

    def grade(self, run, value, grader="correct", revision=1, attempt=1, epoch="correct@1", **more):
        if not isinstance(value, msgspec.Struct):
            value = fail("broken") if value is None else score(value)
        return GradeGiven(
            id=digest(run, grader, revision, attempt, epoch, msgspec.json.encode(value)),
            trajectory_id=run,
            revision=revision,
            grader=grader,
            epoch=epoch,
            attempt=attempt,
            grade=value,
            **more,
        )

    def finished(self, run, revision=1, **facts):
        facts.setdefault("bytes", 100)
        return GradingFinished(
            trajectory_id=run,
            revision=revision,
            content_hash=f"hash-{run}-{revision}",
            position=Position("topic-id", 0, self.offset),
            graders=("correct",),
            facts=RolloutFacts(**facts),
        )

    def graded(self, run, value, revision=1, epoch="correct@1", ms=None, **facts):
        """The one record that the grading stage writes of a run."""
        grade = self.grade(run, value, revision=revision, epoch=epoch)
        return self.record(grade, self.finished(run, revision, **facts), ms=ms)

    def group(self, name, values, **facts):
        """The records of a whole group."""
        facts = {"group": name, "task_id": name, "group_size": len(values), "policy_version": 1, **facts}
        return [self.graded(f"{name}-{n}", value, **facts) for n, value in enumerate(values)]

    def policy(self, *events):
        return self.record(*events, topic="policy-events")


def decisions_of(outputs):
    return [
        _DECISIONS.decode(line)
        for output in outputs
        if output.topic == "buffer-events"
        for line in output.value.split(b"\n")
    ]


def run(stage, records: Iterable[Record]):
    return [decision for record in records for decision in decisions_of(stage.feed(record))]


def kinds(decisions):
    return [type(d).__name__ for d in decisions]


def ledger_of(decisions):
    ledger = BufferLedger()
    for decision in decisions:
        ledger.apply(decision)
    return ledger


@pytest.fixture
def desk():
    return Desk()


@pytest.fixture
def fold():
    return run


@pytest.fixture
def told():
    return decisions_of


@pytest.fixture
def named():
    return kinds


@pytest.fixture
def refold():
    return ledger_of


@pytest.fixture(scope="session")
def desks():
    """A desk for hypothesis: each example resets it."""
    return Desk()


@pytest.fixture(scope="session")
def refold_json():
    """The ledger of decisions that are plain JSON objects."""
    return lambda told: ledger_of(msgspec.convert(told, list[BufferDecision]))
