"""What a grader that was away could not grade is graded when it is back: by itself, once, and beside the old."""

from __future__ import annotations

import time
from contextlib import contextmanager

import pytest

from millstream.console.catalog import grades
from millstream.console.graded import grade_rows
from millstream.errors import SettingsError
from millstream.grade import fail, score
from millstream.graders.registry import Grader
from millstream.graders.running import GraderSet
from millstream.streams.second_tries import MOST_TRIES, SecondTries

RETRY_S = 60.0


class Away:
    """A grader that asks somebody: what he says now, and what he was asked."""

    def __init__(self):
        self.says = lambda _: fail("nobody there", "infrastructure")
        self.asked = []
        self.taken = False

    def grade(self, t):
        self.asked.append(t.id)
        return self.says(t)

    @property
    def grader(self):
        return Grader("correct", self.grade, epoch="correct@1", outside=True)

    @contextmanager
    def alone(self, name):
        assert name == "correct"
        if self.taken:
            raise SettingsError("another regrade runs")
        yield GraderSet([self.grader])


@pytest.fixture
def away(mill):
    """The grader, the only one that the mill's reward has."""
    made = Away()
    mill.again(made.grader)
    return made


@pytest.fixture
def tries(mill, away):
    made = SecondTries(mill.log, {"correct": "correct@1"}, away.alone, RETRY_S)
    yield made
    made.close()


def work(mill, tries, seconds=0.0):
    """So much later: everything that is due, to its end."""
    mill.clock.advance(int(seconds * 1000))
    while tries.step() or tries.busy:
        time.sleep(0.001)
    mill.run()
    while tries.step() or tries.busy:
        time.sleep(0.001)


def standing(mill):
    """run → (status, attempt) of the grade that counts."""
    rows = [row for row in grade_rows(mill.log) if row["grader"] == "correct" and row["counts"]]
    return {row["trajectory_id"]: (row["status"], row["attempt"]) for row in rows}


def test_when_it_is_back_every_run_has_its_grade_and_the_reward_follows(mill, away, tries):
    """Nothing before its time; then one try, then the others; the failed grades stay, and the books balance."""
    mill.play("a", ["1.0", "0.0", "1.0"])
    away.asked.clear()
    work(mill, tries)
    assert (tries.missing, away.asked, mill.rewards()) == ({"correct": 3}, [], {})
    away.says = lambda t: score(float(t.final_answer))
    work(mill, tries, RETRY_S)
    assert sorted(away.asked) == ["a0", "a1", "a2"]
    assert standing(mill) == dict.fromkeys(["a0", "a1", "a2"], ("scored", 2))
    assert mill.rewards() == {"a0": 1.0, "a1": 0.0, "a2": 1.0}
    assert sum(grade.grade == fail("nobody there", "infrastructure") for grade in grades(mill.log)) == 3
    assert mill.audit().balanced
    work(mill, tries, 10 * RETRY_S)
    assert (tries.missing, len(away.asked)) == ({"correct": 0}, 3)


def test_while_it_is_away_one_run_is_tried_after_ever_longer_waits(mill, away, tries):
    """Each time another one; 60 s, 120 s, 240 s … and never over an hour."""
    mill.play("a", ["1.0", "0.0", "1.0"])
    away.asked.clear()
    work(mill, tries)
    for wait, asked in ((60, 1), (60, 1), (60, 2), (120, 2), (120, 3), (479, 3), (1, 4)):
        work(mill, tries, wait)
        assert len(away.asked) == asked, wait
    assert set(away.asked[:3]) == {"a0", "a1", "a2"}
    for _ in range(6):
        work(mill, tries, 3600)
    assert len(away.asked) == 10


def test_one_run_that_never_gets_a_grade_does_not_keep_the_others_from_theirs(mill, away, tries):
    """It is tried last, and left alone after so many attempts."""
    mill.play("a", ["1.0", "broken", "0.0"])
    work(mill, tries)
    away.says = lambda t: fail("too long", "infrastructure") if t.id == "a1" else score(1.0)
    for _ in range(20):
        work(mill, tries, 3600)
    assert standing(mill) == {"a0": ("scored", 2), "a1": ("failed", MOST_TRIES), "a2": ("scored", 2)}


@pytest.mark.parametrize("kind", ["error", "unparsable"])
def test_what_another_time_would_not_mend_is_not_tried(mill, away, tries, kind):
    """A reply that can't be read is no absence."""
    away.says = lambda _: fail("no verdict", kind)
    mill.play("a", ["1.0"])
    work(mill, tries, 3600)
    assert (tries.missing, len(away.asked)) == ({"correct": 0}, 1)


def test_a_new_absence_begins_with_a_short_wait(mill, away, tries):
    """The long pauses of the last one are over with it."""
    mill.play("a", ["1.0"])
    for _ in range(4):
        work(mill, tries, 3600)
    away.says = lambda _: score(1.0)
    work(mill, tries, 3600)
    assert tries.missing == {"correct": 0}
    away.says = lambda _: fail("nobody there", "timeout")
    mill.play("b", ["1.0"])
    away.asked.clear()
    work(mill, tries, 59)
    assert away.asked == []
    work(mill, tries, 2)
    assert away.asked == ["b0"]


def test_a_process_that_begins_knows_from_the_log_what_is_missing(mill, away, tries):
    """Also how often it was tried; what is past its time is tried at once."""
    mill.play("a", ["1.0", "0.0"])
    work(mill, tries, 60)
    away.says = lambda _: score(1.0)
    again = SecondTries(mill.log, {"correct": "correct@1"}, away.alone, RETRY_S)
    work(mill, again, 60)
    again.close()
    assert sorted(attempt for _, attempt in standing(mill).values()) == [2, 3]


def test_grades_of_another_epoch_are_left_to_a_regrade(mill, away):
    """Grading them by this one would change what rewards rest on, which somebody has to ask for."""
    mill.play("a", ["1.0"])
    away.asked.clear()
    later = SecondTries(mill.log, {"correct": "correct@2"}, away.alone, RETRY_S)
    work(mill, later, 3600)
    later.close()
    assert (later.missing, away.asked) == ({"correct": 0}, [])


def test_who_regrades_by_hand_goes_first(mill, away, tries):
    """While somebody has the data nothing is tried; afterwards it is."""
    mill.play("a", ["1.0"])
    away.taken, away.says = True, lambda _: score(1.0)
    away.asked.clear()
    work(mill, tries, 60)
    assert away.asked == []
    away.taken = False
    work(mill, tries, 120)
    assert standing(mill) == {"a0": ("scored", 2)}


def test_what_was_regraded_by_hand_is_not_missing_any_more(mill, away, tries):
    """Somebody was faster."""
    mill.play("a", ["1.0"])
    work(mill, tries)
    mill.regrade(Grader("correct", lambda _: 1.0, epoch="correct@1"))
    away.asked.clear()
    work(mill, tries, 3600)
    assert (tries.missing, away.asked) == ({"correct": 0}, [])
