"""Feedback in every order: before the run, while it is open, after it, days later; by the run's id or a response's."""

from __future__ import annotations

import itertools
import json

import msgspec
import pytest
from spans import TRACE, a_run, chat, line, said

from millstream.console.audit import audit
from millstream.events import CLOSE_OPEN, NO_RUN, FeedbackGiven, ModelResponded, Tick
from millstream.grade import GradeGiven
from millstream.rollout import BufferDecision, GradingFinished, RolloutAdmitted, RolloutsEvicted
from millstream.settings import RewardSettings
from millstream.streams.buffering import BufferingStage
from millstream.streams.joining import FeedbackJoiner
from millstream.streams.runner import StageRunner

DAYS_MS = 10 * 86_400_000
GRADES = msgspec.json.Decoder(GradeGiven | GradingFinished)
DECISIONS = msgspec.json.Decoder(BufferDecision)


class Kept:
    """Where the joiner keeps how far it is."""

    def __init__(self):
        self.kept = {}

    def load(self, topic_id):
        return self.kept.get(topic_id, {})

    def save(self, topic_id, offsets):
        self.kept = {topic_id: dict(offsets)}


@pytest.fixture
def fed(mill):
    """A mill whose reward is what people say, with the worker that finds runs."""
    mill.settings = msgspec.structs.replace(mill.settings, reward=RewardSettings(formula="feedback"))
    mill.runners[-1] = StageRunner(BufferingStage(mill.settings.buffer, mill.settings.reward), mill.log, mill.store)
    mill.kept = Kept()
    mill.joiner = FeedbackJoiner(mill.log, mill.kept)
    return mill


def settle(mill):
    """Everything goes on until nothing is left to do."""
    mill.run()
    while mill.joiner.step():
        mill.run()


def give(mill, value, *, run=NO_RUN, response="", identity="f", **fields):
    mill.send(FeedbackGiven(id=identity, trajectory_id=run, response_id=response, value=value, **fields))


def events(mill, name, response=""):
    """A run whose one response may have an id."""
    told = mill.events(name)
    return [msgspec.structs.replace(e, response_id=response) if isinstance(e, ModelResponded) else e for e in told]


def grades(mill):
    """What people said, as grades: (run, value)."""
    lines = [one for record in mill.log.read("grades", 0, 0) for one in record.value.splitlines()]
    found = [one for one in map(GRADES.decode, lines) if isinstance(one, GradeGiven) and one.grader == "feedback"]
    return list(dict.fromkeys((one.trajectory_id, one.grade.score, one.id) for one in found))


def decisions(mill, *kinds):
    lines = [one for record in mill.log.read("buffer-events", 0, 0) for one in record.value.splitlines()]
    return [one for one in map(DECISIONS.decode, lines) if isinstance(one, kinds)]


def balanced(mill):
    report = audit(mill.log, mill.store, mill.settings)
    assert report.differences == ()
    return {one.name: one.count for one in report.lines if one.section == "events"}


@pytest.mark.parametrize("by", ["run", "response"])
@pytest.mark.parametrize("order", list(itertools.permutations(["start", "end", "feedback"])))
def test_any_order_gives_the_same_reward(fed, by, order):
    """Before anything of the run is known, while it is open, after it is sealed: one grade, and one rollout."""
    if order.index("end") < order.index("start"):
        order = tuple(reversed(order))
    told = events(fed, "a", "resp-1")
    for what in order:
        if what == "feedback":
            give(fed, 0.25, **({"run": "a"} if by == "run" else {"response": "resp-1"}))
        else:
            fed.send(*(told[:2] if what == "start" else told[2:]))
        settle(fed)
    ((run, value, _),) = grades(fed)
    assert (run, value) == ("a", 0.25)
    (admitted,) = decisions(fed, RolloutAdmitted)
    assert (admitted.trajectory_id, admitted.reward) == ("a", 0.25)
    counted = balanced(fed)
    assert counted["in a trajectory"] == 4
    assert counted["feedback"] == 1
    assert counted.get("replayed", 0) == (by == "response")
    assert "dead letter" not in counted


def test_days_later_it_withdraws_what_the_old_reward_admitted(fed):
    """The rollout leaves the buffer under its old reward and enters under the new one; the trajectory stays."""
    fed.send(*events(fed, "a", "resp-1"))
    give(fed, 1.0, run="a")
    settle(fed)
    (before,) = decisions(fed, RolloutAdmitted)
    end = fed.log.bounds("trajectories")[1]
    fed.clock.advance(DAYS_MS / 1000)
    give(fed, 0.0, response="resp-1", identity="late")
    settle(fed)
    (gone,) = decisions(fed, RolloutsEvicted)
    assert gone.rollout_ids == (before.rollout_id,)
    assert [one.reward for one in decisions(fed, RolloutAdmitted)] == [1.0, 0.0]
    assert {one.trajectory_revision for one in decisions(fed, RolloutAdmitted)} == {1}
    kinds = [record.headers["kind"] for record in fed.log.read("trajectories", 0, end)]
    assert kinds == ["feedback"]
    balanced(fed)


def test_a_response_that_several_runs_tell_is_nobodys(fed):
    """It stays a dead letter, visible, and nothing is guessed."""
    fed.send(*events(fed, "a", "step-1"))
    fed.send(*events(fed, "b", "step-1"))
    give(fed, 1.0, response="step-1")
    settle(fed)
    assert grades(fed) == []
    assert balanced(fed)["dead letter"] == 1


def test_feedback_for_nothing_is_a_letter(fed):
    """Neither a run nor a response: said so, and never waited for."""
    give(fed, 1.0)
    settle(fed)
    (record,) = fed.log.read("dead-letters", 0, 0)
    letter = json.loads(record.value)
    assert (letter["reason"], "no response either" in letter["detail"]) == ("unjoined", True)
    assert fed.joiner.waiting == {}


def test_a_restart_goes_on_with_what_waits(fed):
    """A new process knows of the feedback that waits from its letter; joining again changes nothing."""
    give(fed, 0.5, response="resp-1")
    settle(fed)
    fed.joiner = FeedbackJoiner(fed.log, fed.kept)
    fed.send(*events(fed, "a", "resp-1"))
    settle(fed)
    assert [found[:2] for found in grades(fed)] == [("a", 0.5)]
    for place in (fed.kept, Kept()):  # as it was left; with its place lost
        fed.joiner = FeedbackJoiner(fed.log, place)
        settle(fed)
    assert len(grades(fed)) == 1
    assert balanced(fed)["feedback"] >= 1


def test_older_responses_are_looked_for_in_the_log(fed):
    """What is kept in memory is bounded; what is no longer there is found all the same."""
    for number in range(10):
        fed.send(*events(fed, f"r{number}", f"resp-{number}"))
    fed.joiner = FeedbackJoiner(fed.log, fed.kept, remembered=3)
    give(fed, 1.0, response="resp-9", identity="f9")
    settle(fed)
    assert len(fed.joiner._runs) <= 4
    give(fed, 0.5, response="resp-1", identity="f1")
    settle(fed)
    assert [found[:2] for found in grades(fed)] == [("r9", 1.0), ("r1", 0.5)]


def test_an_evaluation_without_a_trace_finds_its_run(fed):
    """OpenTelemetry's `gen_ai.evaluation.result` carries the response's id where it has no span to hang on."""
    told = a_run()
    told[1]["attributes"]["gen_ai.response.id"] = "resp-7"
    fed.raw(b"".join(line(one) + b"\n" for one in told), dialect="otlp/spans")
    attributes = {"gen_ai.evaluation.score.value": 0.5, "gen_ai.response.id": "resp-7"}
    record = {"timeUnixNano": "5", "eventName": "gen_ai.evaluation.result", "attributes": attributes}
    fed.raw(line(record, "log") + b"\n", dialect="otlp/logs")
    fed.send(Tick(id="tick", trajectory_id="-", flags=(CLOSE_OPEN,)))
    settle(fed)
    assert [found[:2] for found in grades(fed)] == [(TRACE, 0.5)]
    counted = balanced(fed)
    assert (counted["feedback"], counted["replayed"]) == (1, 1)


def test_without_a_trace_and_without_a_response_it_is_none(fed):
    """A log record of a call that names a response is no evaluation, and no run."""
    call = chat(2, None, [said("user", "q")], [said("assistant", "a")])["attributes"] | {"gen_ai.response.id": "r"}
    for attributes in (call, {"gen_ai.evaluation.score.value": 1.0}):
        record = {"timeUnixNano": "5", "eventName": "gen_ai.evaluation.result", "attributes": attributes}
        fed.raw(line(record, "log") + b"\n", dialect="otlp/logs")
    settle(fed)
    reasons = [json.loads(record.value)["reason"] for record in fed.log.read("dead-letters", 0, 0)]
    assert reasons == ["invalid_trace", "invalid_trace"]


def test_a_cluster_is_left_alone_between_two_looks(fed):
    """Within the pause nothing is read; after it what came is joined."""
    now = [0.0]
    fed.joiner = FeedbackJoiner(fed.log, fed.kept, pause_s=1.0, clock=lambda: now[0])
    assert not fed.joiner.step()
    fed.send(*events(fed, "a", "resp-1"))
    give(fed, 1.0, response="resp-1")
    fed.run()
    now[0] = 0.9
    assert not fed.joiner.step()
    now[0] = 1.0
    assert fed.joiner.step()
