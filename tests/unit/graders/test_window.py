"""Slow graders beside each other: as many at once as they allow, grades in the order of the runs, nothing mixed up."""

import threading
import time

import msgspec
import pytest

from millstream.grade import Failed, GradeGiven, score
from millstream.graders.registry import grader
from millstream.graders.running import GraderSet
from millstream.graders.window import Window
from millstream.ports import Record
from millstream.streams.grading import GradingStage

PATIENCE_S = 10


class Slow:
    """A grader that waits until so many calls are under way, and counts them."""

    def __init__(self, together):
        self.together = together
        self.under_way = self.most = self.calls = 0
        self.condition = threading.Condition()

    def __call__(self, t):
        with self.condition:
            self.calls += 1
            self.under_way += 1
            self.most = max(self.most, self.under_way)
            self.condition.notify_all()
            self.condition.wait_for(lambda: self.most >= self.together, PATIENCE_S)
            self.under_way -= 1
        if t.final_answer == "bad":
            raise ValueError("bad")
        return score(float(t.final_answer) / 100)


def made(function, calls):
    return grader(name="slow")(function).with_epoch("slow@1", "file").beside(calls)


@pytest.fixture
def runs(make):
    return [make(id=f"run-{n}", answer=str(n)) for n in range(20)]


def test_several_runs_are_graded_side_by_side_in_their_order(runs):
    """Four at once, twenty in a row, each with its own grade."""
    slow = Slow(4)
    graders = GraderSet([made(slow, 4)])
    rows = graders.grade_each(runs)
    graders.close()
    assert [row[0][0].grade.score for row in rows] == [n / 100 for n in range(20)]
    assert (slow.most, slow.calls) == (4, 20)


def test_the_stage_asks_ahead_and_answers_in_order(runs):
    """What is expected is begun; one record after another comes out, each run graded once."""
    slow = Slow(3)
    graders = GraderSet([made(slow, 3)])
    stage = GradingStage(graders)
    records = [
        Record("trajectories", 0, n, 1000 + n, t.id, msgspec.json.encode(t), {"kind": "trajectory"})
        for n, t in enumerate(runs)
    ]
    stage.expect(records)
    for n, record in enumerate(records):
        (output,) = stage.feed(record)
        given = msgspec.json.decode(output.value.splitlines()[0], type=GradeGiven)
        assert (given.trajectory_id, given.grade.score) == (f"run-{n}", n / 100)
    graders.close()
    assert (slow.most, slow.calls) == (3, 20)


def test_a_failure_stays_with_its_run(make):
    """Its neighbours in the window have their grades."""
    graders = GraderSet([made(Slow(1), 3)])
    rows = graders.grade_each([make(id="a", answer="1"), make(id="b", answer="bad"), make(id="c", answer="3")])
    graders.close()
    assert [type(row[0][0].grade) for row in rows] == [type(score(1)), Failed, type(score(1))]


def test_what_is_never_taken_is_bounded(make):
    """Runs that were begun and do not come are forgotten, and closing waits for none."""
    slow = Slow(100)
    window = Window([made(slow, 2)])
    window.begin([make(id=f"run-{n}", answer="1") for n in range(50)])
    assert len(window._under_way) <= 4
    begun = time.monotonic()
    window.close()
    assert time.monotonic() - begun < 1
    with slow.condition:
        slow.most = 100
        slow.condition.notify_all()


def test_quick_graders_have_no_window(runs):
    """No threads, no lookahead."""
    graders = GraderSet([grader(name="quick")(lambda t: 1.0)])
    assert graders.window == 1
    assert graders.grade(runs[0])[0][0].grade.score == 1.0
    graders.close()
