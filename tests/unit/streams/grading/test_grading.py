"""The grade stage: one record of grades for each trajectory, feedback beside, dead letters for the rest."""

from __future__ import annotations

import json

import msgspec
import pytest

from millstream.codec import digest
from millstream.events import (
    EventId,
    FeedbackGiven,
    ModelResponded,
    Task,
    TrajectoryEnded,
    TrajectoryId,
    TrajectoryStarted,
)
from millstream.grade import Censored, Failed, GradeGiven, Scored
from millstream.graders.builtin import builtin
from millstream.graders.registry import grader
from millstream.graders.running import Given, GraderSet
from millstream.ports import Processor, Record
from millstream.rollout import GradeEvent, Position
from millstream.streams.grading import GradingStage
from millstream.trajectory import Trajectory

decode = msgspec.json.Decoder(GradeEvent).decode_lines


@grader
def broken(t):
    raise RuntimeError("on purpose")


def run(answer="7", end="done", **fields):
    common = {"trajectory_id": TrajectoryId("t1")}
    events = (
        TrajectoryStarted(
            id=EventId("a"), **common, task=Task(id="task", reference=7.0), group="g", attempt=3, split="train"
        ),
        ModelResponded(id=EventId("b"), **common, text=answer, token_ids=(1, 2, 3)),
        TrajectoryEnded(id=EventId("c"), **common, final_answer=answer, reason=end),
    )
    return Trajectory(**{"id": TrajectoryId("t1"), "events": events, "content_hash": "h", "revision": 2, **fields})


def record(value, kind="trajectory", offset=5):
    raw = value if isinstance(value, bytes) or value is None else msgspec.json.encode(value)
    return Record("trajectories", 1, offset, 1000, "t1", raw, {"kind": kind})


@pytest.fixture
def stage():
    """A stage with a built-in and a grader that raises."""
    own = broken.with_epoch("broken@x", "file")
    return GradingStage(GraderSet([builtin("numeric"), own]), topic_id="T")


def test_it_is_a_processor_without_state(stage):
    """Its snapshot is empty, so the runner never feeds it again to restore."""
    assert isinstance(stage, Processor)
    assert (stage.name, stage.inputs, stage.stateless) == ("grade", ("trajectories",), True)
    assert stage.snapshot() == b""
    stage.restore(b"")
    assert stage.deadline_ms() is None


def test_a_trajectory_gets_its_grades_and_then_grading_finished(stage):
    """Ids are hashes of (trajectory id, revision, epoch, attempt); a grader that raises is Failed, never 0."""
    (output,) = stage.feed(record(run()))
    assert (output.topic, output.key, output.headers) == ("grades", "t1", {"kind": "grades"})
    numeric, failed, finished = decode(output.value)
    assert isinstance(numeric.grade, Scored)
    assert numeric.grade.score == 1.0
    assert failed.grade.reason.startswith("RuntimeError: on purpose\n  test_grading.py, line ")
    assert numeric.id == digest("t1", 2, builtin("numeric").epoch, 1)
    assert (numeric.revision, numeric.input_hash, numeric.known_ms, numeric.source) == (2, "h", 1000, "builtin")
    assert finished.graders == ("numeric", "broken")
    assert finished.grade_ids == (numeric.id, failed.id)
    assert finished.position == Position("T", 1, 5)
    assert (finished.content_hash, finished.revision, finished.known_ms) == ("h", 2, 1000)


def test_g12_a_conflict_of_golds_is_flagged(stage):
    """And a match with the text alone is not paid."""
    start, *rest = run(answer="8").events
    task = Task(id="task", reference=7.0, metadata={"answer": "8"})
    events = (msgspec.structs.replace(start, task=task), *rest)
    given = decode(stage.feed(record(run(events=events)))[0].value)[0]
    assert (given.grade.score, given.grade.label, given.flags) == (0.0, "text_only", ("gold_conflict",))


def test_grading_finished_carries_the_facts(stage):
    """Enough to decide about a rollout without its text."""
    value = msgspec.json.encode(run())
    facts = decode(stage.feed(record(value))[0].value)[-1].facts
    assert (facts.task_id, facts.group, facts.attempt, facts.split) == ("task", "g", 3, "train")
    assert (facts.bytes, facts.policy_tokens, facts.steps, facts.trainable) == (len(value), 3, 1, True)
    assert len(facts.signature) == 128


@pytest.mark.parametrize(
    ("fields", "end", "censored"),
    [
        ({"status": "interrupted", "reason": "gap_timeout", "missing": ("p:3",)}, "done", True),
        ({"status": "timed_out", "reason": "idle_timeout"}, "done", True),
        ({"status": "interrupted", "reason": "reported_crash"}, "crash", True),
        ({"status": "interrupted", "reason": "unanswered_call"}, "limit", False),
        ({"status": "interrupted", "reason": "overflow"}, "done", False),
        ({}, "limit", False),
    ],
)
def test_only_absent_telemetry_and_infrastructure_censor(stage, fields, end, censored):
    """A run that the policy drove into a limit is graded; a censored one runs no grader."""
    grades = decode(stage.feed(record(run(end=end, **fields)))[0].value)[:-1]
    assert [isinstance(given.grade, Censored) for given in grades] == [censored, censored]
    if fields.get("missing"):
        assert "p:3" in grades[0].grade.reason


def test_the_same_record_gives_the_same_grades(stage):
    """But for the nanoseconds it took: doing it twice is doing it once."""

    def told(output):
        return [{k: v for k, v in json.loads(line).items() if k != "latency_ns"} for line in output.value.splitlines()]

    assert told(stage.feed(record(run()))[0]) == told(stage.feed(record(run()))[0])


def test_feedback_becomes_a_grade_by_its_events_id(stage):
    """It may come before the run; two deliveries are one grade."""
    event = FeedbackGiven(
        id=EventId("f1"), trajectory_id=TrajectoryId("t1"), source="environment", name="reward", value=0.0
    )
    (output,) = stage.feed(record(event, "feedback"))
    (given,) = decode(output.value)
    assert isinstance(given, GradeGiven)
    assert (given.grader, given.grade.score, given.source, given.valid_ms) == (
        "feedback.reward",
        0.0,
        "environment",
        1000,
    )
    assert decode(stage.feed(record(event, "feedback", offset=9))[0].value)[0].id == given.id


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (b"\xff\xfe\x00", "trajectory"),
        (b"{}", "trajectory"),
        (b"[1", "feedback"),
        (b'{"kind":"Tick","id":"x"}', "feedback"),
    ],
)
def test_poison_becomes_a_dead_letter_and_its_neighbour_is_graded(stage, value, kind):
    """T35: with topic, partition, offset and the bytes."""
    (output,) = stage.feed(record(value, kind))
    letter = json.loads(output.value)
    assert output.topic == "dead-letters"
    assert (letter["stage"], letter["topic_id"], letter["partition"], letter["offset"]) == ("grade", "T", 1, 5)
    assert letter["reason"] == "undecodable"
    assert stage.feed(record(run()))[0].topic == "grades"


def test_a_null_record_is_skipped(stage):
    """T34."""
    assert list(stage.feed(record(None))) == []


def test_every_attempt_is_recorded_and_the_effective_one_is_listed():
    """The first attempt that did not fail counts."""
    own = broken.with_epoch("flaky@x", "file")

    class Twice(GraderSet):
        def grade(self, trajectory, foreseen=None):
            failed = Failed(kind="infrastructure", reason="died")
            return [[Given(own, failed, 1), Given(own, Scored(score=0.5), 2)]]

    first, second, finished = decode(GradingStage(Twice([own])).feed(record(run()))[0].value)
    assert (first.attempt, second.attempt) == (1, 2)
    assert first.id != second.id
    assert finished.grade_ids == (second.id,)
