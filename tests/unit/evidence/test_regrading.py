"""Regrading appends beside, follows into the buffer, and goes on where it stopped."""

from __future__ import annotations

import pytest

from millstream.console.catalog import grades
from millstream.errors import SettingsError
from millstream.graders.registry import Grader
from millstream.graders.running import GraderSet
from millstream.rollout import GroupClosed, RolloutAdmitted, RolloutsEvicted
from millstream.streams import regrading
from millstream.streams.regrading import Regrading


def test_new_grades_stand_beside_the_old(mill, grader):
    """Each run has a grade of each epoch, each with its own id, and the old ones say what they said."""
    mill.play("a", ["1.0", "0.0"])
    before = {g.id: g for g in grades(mill.log)}
    report = mill.regrade(grader(2, mended=True))
    after = {g.id: g for g in grades(mill.log)}
    assert (report.runs, report.regraded, report.standing, report.grades.scored) == (2, 2, 0, 2)
    assert {i: after[i] for i in before} == before
    assert sorted((g.trajectory_id, g.grade.score) for g in after.values() if g.epoch == "correct@2") == [
        ("a0", 0.0),
        ("a1", 1.0),
    ]


def test_the_buffer_follows_by_its_events_and_the_books_balance(mill, grader):
    """A group leaves whole with its first member, waits for the others, and enters once under the new epoch."""
    mill.play("a", ["1.0", "0.0", "1.0"])
    assert mill.rewards() == {"a0": 1.0, "a1": 0.0, "a2": 1.0}
    told = len(mill.decisions())
    mill.regrade(grader(2, mended=True))
    assert mill.rewards() == {"a0": 0.0, "a1": 1.0, "a2": 0.0}
    new = mill.decisions()[told:]
    assert [type(d) for d in new] == [RolloutsEvicted, GroupClosed, *[RolloutAdmitted] * 3]
    assert {epoch for d in new if isinstance(d, RolloutAdmitted) for epoch in d.grader_epochs} == {"correct=correct@2"}
    assert new[0].reason.startswith("superseded")
    found = mill.audit()
    assert found.balanced, found.differences


def test_a_grade_that_says_the_same_is_a_new_revision_of_the_reward(mill, grader):
    """The reward rests on other evidence, so the rollout has another id, and the epoch is named."""
    mill.play("a", ["1.0", "0.0"])
    before = set(mill.buffer.entries)
    mill.regrade(grader(2))
    assert mill.rewards() == {"a0": 1.0, "a1": 0.0}
    assert not before & set(mill.buffer.entries)


def test_members_that_are_not_regraded_are_decided_again_by_the_timer(mill, grader):
    """Half a group regraded: no group mixes epochs, and the other half comes back when its time is up."""
    mill.play("a", ["1.0", "0.0", "1.0", "0.0"])
    work = mill.regrading(grader(2))
    work.wanted = work.wanted[:2]
    work.append()
    mill.run()
    assert mill.rewards() == {}
    mill.clock.advance(61_000)
    mill.run()
    assert mill.rewards() == {"a0": 1.0, "a1": 0.0, "a2": 1.0, "a3": 0.0}
    groups = {e.group for e in mill.buffer.entries.values()}
    assert len(groups) == 2
    assert mill.audit().balanced


def test_doing_it_twice_is_doing_it_once(mill, grader):
    """A whole regrade that is started again grades nothing."""
    mill.play("a", ["1.0", "0.0"])
    mill.regrade(grader(2))
    end = mill.log.bounds("grades")
    report = mill.regrade(grader(2))
    assert (report.regraded, report.standing) == (0, 2)
    assert mill.log.bounds("grades") == end


def test_an_interrupted_regrade_goes_on_where_it_stopped(mill, grader, monkeypatch):
    """What was appended before the interruption is not graded again; the end is as without one."""
    monkeypatch.setattr(regrading, "APPEND_BYTES", 1)
    monkeypatch.setattr(regrading, "MOST", 3)
    for n in range(8):
        mill.play(f"g{n}", ["1.0", "0.0"])

    def stop(done, _of):
        if done >= 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        mill.regrading(grader(2)).append(stop)
    assert sum(g.epoch == "correct@2" for g in grades(mill.log)) == 8
    report = mill.regrade(grader(2))
    assert (report.regraded, report.standing) == (8, 8)
    assert sum(g.epoch == "correct@2" for g in grades(mill.log)) == 16
    assert len(mill.rewards()) == 16
    assert mill.audit().balanced


def test_a_failed_grade_is_tried_again_under_the_same_epoch(mill, grader):
    """A grader that was down: the next attempt has the next number, and the reward comes."""
    mill.play("a", ["1.0", "broken"])
    assert mill.rewards() == {}
    report = mill.regrade(Grader("correct", lambda _: 0.5, epoch="correct@1"))
    assert (report.regraded, report.standing) == (1, 1)
    second = [g for g in grades(mill.log) if g.trajectory_id == "a1" and g.grader == "correct"]
    assert [g.attempt for g in second] == [1, 2]
    assert mill.rewards() == {"a0": 1.0, "a1": 0.5}
    assert mill.audit().balanced


def test_going_back_to_an_epoch_makes_its_first_grade_count_again(mill, grader):
    """1, then 2, then 1 again: the newest epoch is the first one, whose first attempt stands."""
    mill.play("a", ["1.0", "0.0"])
    mill.regrade(grader(2, mended=True))
    report = mill.regrade(grader(1))
    assert report.regraded == 2
    assert mill.rewards() == {"a0": 1.0, "a1": 0.0}
    assert sorted(g.attempt for g in grades(mill.log) if g.epoch == "correct@1") == [1, 1, 2, 2]
    assert mill.audit().balanced


def test_a_new_epoch_that_fails_takes_the_reward_away(mill):
    """A failure is no reason to believe the epoch that was replaced."""
    mill.play("a", ["1.0", "0.0"])
    mill.regrade(Grader("correct", lambda _: 1 / 0, epoch="correct@2"))
    assert mill.rewards() == {}
    assert {d.reason for d in mill.decisions()[-2:]} == {"no_reward"}
    assert mill.audit().balanced


def test_a_judges_grade_stands_whichever_model_answered(mill, grader):
    """What is compared is what is known before a judge is asked: its epoch without the model's name."""
    mill.again(Grader("correct", lambda _: 1.0, epoch="correct@1+model-2026-01-01"))
    mill.play("a", ["1.0"])
    assert mill.regrade(grader(1)).standing == 1
    assert mill.regrade(grader(2)).regraded == 1


def test_only_runs_sealed_since(mill, grader):
    """``since`` leaves earlier runs alone."""
    mill.play("a", ["1.0", "0.0"])
    mill.clock.advance(10_000)
    since = mill.log.now_ms()
    mill.play("b", ["1.0", "0.0"])
    report = mill.regrade(grader(2), since_ms=since)
    assert (report.runs, report.regraded) == (2, 2)
    assert {g.trajectory_id for g in grades(mill.log) if g.epoch == "correct@2"} == {"b0", "b1"}


def test_valid_and_known_time_are_apart(mill, grader):
    """A new grade is valid since the run was sealed, and known since it was given."""
    mill.play("a", ["1.0"])
    mill.clock.advance(86_400_000)
    mill.regrade(grader(2))
    old, new = (g for g in grades(mill.log) if g.grader == "correct")
    assert old.valid_ms == new.valid_ms == old.known_ms
    assert new.known_ms >= old.known_ms + 86_400_000


def test_a_group_that_a_training_holds_waits_until_it_is_let_go(mill, grader):
    """While a training has the rollouts they stay leased; after it they leave, and each run is there once."""
    mill.base()
    mill.play("a", ["1.0", "0.0"])
    mill.train(2, finish=False)
    mill.regrade(grader(2, mended=True))
    assert mill.rewards() == {"a0": 1.0, "a1": 0.0}
    assert len(mill.buffer.entries) == 2
    mill.finish(2)
    assert mill.rewards() == {"a0": 0.0, "a1": 1.0}
    assert len(mill.buffer.entries) == 2
    found = mill.audit()
    assert found.balanced, found.differences


def test_after_a_restart_in_the_middle_the_buffer_is_the_same(mill, grader):
    """A stage restored between two members of a group decides as one that ran through."""
    mill.play("a", ["1.0", "0.0", "1.0"])
    work = mill.regrading(grader(2, mended=True))
    work.wanted = work.wanted[:1]
    work.append()
    mill.run()
    mill.again(grader(2, mended=True))
    mill.regrade(grader(2, mended=True))
    assert mill.rewards() == {"a0": 0.0, "a1": 1.0, "a2": 0.0}
    assert mill.audit().balanced


def test_a_regrade_is_of_one_grader(mill, grader):
    """Two at once are refused."""
    with pytest.raises(SettingsError, match="one grader"):
        Regrading(mill.log, GraderSet([grader(1), Grader("b", lambda _: 1.0)]))
