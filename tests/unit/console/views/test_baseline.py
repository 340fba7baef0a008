"""How good what is there is, with every denominator."""

import msgspec
import pytest

from millstream.console.baseline import baseline, render
from millstream.grade import GradeGiven, fail, score
from millstream.ports import Message
from millstream.topics import GRADES


def test_rates_have_intervals_and_denominators(looped) -> None:
    """Three of six scored runs right; the failed and the abstained one are counted and not zeros."""
    correct, form = baseline(looped)
    assert (correct.grader, correct.policy_version, correct.lineage) == ("correct", 1, "policy")
    assert correct.mean == pytest.approx(0.5)
    assert correct.low is not None
    assert correct.high is not None
    assert correct.low < 0.5 < correct.high
    assert (correct.runs, correct.tally.scored, correct.tally.failed, correct.tally.abstained) == (8, 6, 1, 1)
    assert (correct.tasks, correct.worlds, correct.kind) == (4, 3, "rate")
    assert (form.grader, form.kind, form.mean) == ("format", "score", 0.75)
    assert [row.grader for row in baseline(looped, "format")] == ["format"]


def test_a_later_attempt_or_revision_stands(looped) -> None:
    """Run 6 failed once and is scored at its second attempt; run 1 has a new revision that is right."""
    given = [
        GradeGiven(
            id="g6b", trajectory_id="run-6", revision=1, grader="correct", epoch="e1", grade=score(1.0), attempt=2
        ),
        GradeGiven(id="g1b", trajectory_id="run-1", revision=2, grader="correct", epoch="e1", grade=score(1.0)),
        GradeGiven(id="g1c", trajectory_id="run-1", revision=1, grader="correct", epoch="e1", grade=fail("late")),
    ]
    looped.append(GRADES.name, [Message("x", msgspec.json.encode(g), {"kind": "grades"}) for g in given])
    row = baseline(looped, "correct")[0]
    assert (row.tally.scored, row.tally.failed, row.runs) == (7, 0, 8)
    assert row.mean == pytest.approx(5 / 7)


def test_all_failed_is_no_zero(log) -> None:
    """A grader that always fails has no mean at all."""
    given = GradeGiven(id="g", trajectory_id="t", revision=1, grader="judge", epoch="e", grade=fail("down"))
    log.append(GRADES.name, [Message("t", msgspec.json.encode(given), {"kind": "grades"})])
    row = baseline(log)[0]
    assert (row.mean, row.low, row.policy_version) == (None, None, None)
    assert render([row]).splitlines()[1].split() == ["–", "–", "judge", "e", "–", "–", "0", "1", "0", "0", "1", "0"]


def test_nothing_graded_says_what_to_do(log) -> None:
    """An empty log names the next commands."""
    assert "millstream up" in render(baseline(log))
