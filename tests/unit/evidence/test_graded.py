"""Grades are read at two times, and every read says which of them count."""

from __future__ import annotations

import pytest

from millstream.bootstrap.evidence import _write
from millstream.console.baseline import baseline, render
from millstream.console.calibration import Wanted, calibrate
from millstream.console.catalog import ledger
from millstream.console.decided import policy_rows, rollout_rows
from millstream.console.families import Asked, families
from millstream.console.graded import grade_rows, whole_grades
from millstream.console.measures import figures
from millstream.console.recalled import rests_on
from millstream.deploy.recall import Target
from millstream.errors import SettingsError
from millstream.graders.reward import Formula
from millstream.recalls import NONE
from millstream.settings import RewardSettings


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


def test_every_figure_is_read_at_both_times(mill, grader):
    """Three reads of one log: what is known now, what was known then, and what of all that is known held then."""
    mill.base()
    mill.play("a", ["1.0"], task="a", world="a")
    then = mill.log.now_ms()
    mill.clock.advance(60_000)
    mill.regrade(grader(2, mended=True))
    mill.play("b", ["1.0"], task="b", world="b")
    mill.feedback("a0", 1.0)
    reward = [Asked("policy", RewardSettings(formula="correct"), 32)]
    reads = {
        "now": {},
        "known": {"as_of_ms": then},
        "held": {"valid_at_ms": then},
        "both": {"as_of_ms": then, "valid_at_ms": then},
    }
    told = {
        name: {
            "metrics": [(f.epochs, f.value, f.n) for f in figures(mill.log, Formula("correct"), NONE, **times)
                        if f.metric == "success"],
            "families": [(f.epochs, f.mean, f.runs) for f in families(mill.log, reward, **times)],
            "baseline": [(r.epoch, r.mean, r.runs) for r in baseline(mill.log, "correct", **times)],
            "feedback": [r.runs for r in baseline(mill.log, "feedback", **times)],
        }
        for name, times in reads.items()
    }  # fmt: skip
    old, new = ("correct@1", 1.0, 1), ("correct@2", 0.0, 1)
    assert told["now"]["metrics"] == [old, new]
    assert told["known"]["metrics"] == told["both"]["metrics"] == [old]
    assert told["held"]["metrics"] == [new]
    assert told["known"]["families"] == told["both"]["families"] == [(("correct=correct@1",), 1.0, 1)]
    assert told["held"]["families"] == [(("correct=correct@2",), 0.0, 1)]
    assert told["known"]["baseline"] == told["both"]["baseline"] == [old]
    assert told["held"]["baseline"] == [old, new]
    assert [told[name]["feedback"] for name in reads] == [[1], [], [], []]


def test_a_recall_that_was_not_known_then_takes_nothing_from_a_read_of_then(mill):
    """Neither from figures nor from a calibration."""
    mill.play("a", ["1.0"], task="a", world="a")
    mill.feedback("a0", 1.0)
    then = mill.log.now_ms()
    mill.clock.advance(1000)
    target = Target(grader="correct", epochs=("correct@1",))
    _write(mill.log, ["policy"], target, rests_on(mill.log, "correct", target.epochs, target.span, "").impact, "x")
    wanted = Wanted(graders=("correct",), gold="feedback")
    with pytest.raises(SettingsError, match="nothing to compare"):
        calibrate(mill.log, wanted)
    assert calibrate(mill.log, wanted, as_of_ms=then).agreement.n == 1
    counted = [[(r.runs, r.recalled) for r in baseline(mill.log, "correct", as_of_ms=ms)] for ms in (None, then)]
    assert counted == [[(0, 1)], [(1, 0)]]
    assert "recalled, and not counted: 1 grades" in render(baseline(mill.log, "correct"))
    scored = [
        [f.n for f in figures(mill.log, Formula("correct"), ledger(mill.log, ms).recalls, as_of_ms=ms)
         if f.metric == "success"]
        for ms in (None, then)
    ]  # fmt: skip
    assert scored == [[0], [1]]


def test_a_calibration_is_of_one_epoch(mill, grader):
    """Words of the epoch before are counted as left out, and never meet those of this one in one agreement."""
    for n, answer in enumerate(["1.0", "1.0", "0.0"]):
        mill.play(f"g{n}", [answer], task=f"t{n}")
        mill.feedback(f"g{n}0", float(answer))
    wanted = Wanted(graders=("correct",), gold="feedback")
    assert (calibrate(mill.log, wanted).agreement.n, calibrate(mill.log, wanted).others) == (3, 0)
    mill.clock.advance(60_000)
    mill.again(grader(2, mended=True))
    mill.play("late", ["1.0"])
    mill.feedback("late0", 1.0)
    found = calibrate(mill.log, wanted)
    assert (found.epoch, found.gold_epoch, found.agreement.n, found.others) == ("correct@2", "feedback@1", 1, 3)
    assert found.agreement.agreement == 0.0
