"""Grades are read at two times, and every read says which of them count."""

from __future__ import annotations

from millstream.bootstrap.evidence import _write
from millstream.console.decided import policy_rows, rollout_rows
from millstream.console.graded import grade_rows, whole_grades
from millstream.console.recalled import rests_on
from millstream.deploy.recall import Target


def correct(rows):
    """run → (epoch, score) of the grades of `correct` that count."""
    return {r["trajectory_id"]: (r["epoch"], r.get("score")) for r in rows if r["grader"] == "correct" and r["counts"]}


def test_after_a_regrade_the_new_grades_count_and_the_old_are_there(mill, grader):
    """Two grades of each run, one of which counts."""
    mill.play("a", ["1.0", "0.0"])
    mill.regrade(grader(2, mended=True))
    rows = [row for row in grade_rows(mill.log) if row["grader"] == "correct"]
    assert len(rows) == 4
    assert correct(rows) == {"a0": ("correct@2", 0.0), "a1": ("correct@2", 1.0)}


def test_what_was_known_and_what_held(mill, grader):
    """As of a time before the regrade the old grade counts; at that same time the new one held already."""
    mill.play("a", ["1.0"])
    then = mill.log.now_ms()
    mill.clock.advance(60_000)
    mill.regrade(grader(2, mended=True))
    mill.play("b", ["1.0"])
    assert correct(grade_rows(mill.log, as_of_ms=then)) == {"a0": ("correct@1", 1.0)}
    assert correct(grade_rows(mill.log, valid_at_ms=then)) == {"a0": ("correct@2", 0.0)}
    assert correct(grade_rows(mill.log, as_of_ms=then, valid_at_ms=then)) == {"a0": ("correct@1", 1.0)}
    assert correct(grade_rows(mill.log)) == {"a0": ("correct@2", 0.0), "b0": ("correct@1", 1.0)}


def test_a_failed_attempt_does_not_count_where_a_later_one_scored(mill, grader):
    """The second attempt of one epoch."""
    from millstream.graders.registry import Grader

    mill.play("a", ["broken"])
    mill.regrade(Grader("correct", lambda _: 0.5, epoch="correct@1"))
    rows = [row for row in whole_grades(mill.log) if row["grader"] == "correct"]
    assert [(row["attempt"], row["counts"]) for row in rows] == [(1, False), (2, True)]


def test_recalled_grades_do_not_count(mill):
    """Nothing of the epoch does; as of before the recall it did."""
    mill.play("a", ["1.0"])
    then = mill.log.now_ms()
    mill.clock.advance(1000)
    target = Target(grader="correct", epochs=("correct@1",))
    _write(mill.log, ["policy"], target, rests_on(mill.log, "correct", target.epochs, target.span, "").impact, "x")
    assert correct(grade_rows(mill.log)) == {}
    assert correct(grade_rows(mill.log, as_of_ms=then)) == {"a0": ("correct@1", 1.0)}


def test_rollouts_and_policies_of_a_time(mill, grader):
    """Each read names the epochs that the reward rests on, as they were known then."""
    mill.base()
    mill.play("a", ["1.0", "0.0"])
    then = mill.log.now_ms()
    mill.clock.advance(60_000)
    mill.regrade(grader(2, mended=True))
    mill.train(2)
    now = {row.trajectory_id: (row.reward, row.epochs) for row in rollout_rows(mill.log)}
    assert now["a0"] == (0.0, ("correct=correct@2",))
    before = {row.trajectory_id: (row.reward, row.epochs) for row in rollout_rows(mill.log, as_of_ms=then)}
    assert before["a0"] == (1.0, ("correct=correct@1",))
    assert len(policy_rows(mill.log)) == 2
    assert len(policy_rows(mill.log, as_of_ms=then)) == 1
