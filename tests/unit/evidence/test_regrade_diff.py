"""A diff says what a regrade would change, and changes nothing."""

from __future__ import annotations

import pytest

from millstream.console.regrade_diff import Plain, diff
from millstream.recalls import NONE


@pytest.fixture
def compare(mill):
    """The diff of a regrade by a grader."""

    def run(grader):
        new = (given for batch in mill.regrading(grader).grades() for _, given in batch)
        return diff(mill.log, grader.name, grader.epoch, new, [Plain("policy", "default", mill.settings.reward)], NONE)

    return run


def test_what_flips_and_what_stays(mill, grader, compare):
    """Two rewards flip, one run keeps its failure, nothing is written, and the means are told."""
    mill.play("a", ["1.0", "0.0", "broken"])
    ends = {topic: mill.log.bounds(topic) for topic in ("grades", "buffer-events")}
    found = compare(grader(2, mended=True))
    (part,) = found.lineages
    assert (found.runs, found.replaces) == (3, {"correct@1": 3})
    assert found.grades == {"lowered": 1, "raised": 1, "failed (error) as before": 1}
    assert (part.named, part.graded, part.changed, part.flips, part.came, part.went) == (True, 2, 2, 2, 0, 0)
    assert (part.mean_before, part.mean_after) == (0.5, 0.5)
    assert [(c.trajectory_id, c.old, c.new) for c in part.changes] == [("a0", 1.0, 0.0), ("a1", 0.0, 1.0)]
    assert {topic: mill.log.bounds(topic) for topic in ends} == ends


def test_what_it_foretells_is_what_happens(mill, grader, compare):
    """The rewards after the regrade are those of the diff."""
    mill.play("a", ["1.0", "0.0"])
    mill.play("b", ["1.0", "1.0"])
    (part,) = compare(grader(2, mended=True)).lineages
    mill.regrade(grader(2, mended=True))
    assert mill.rewards() == {change.trajectory_id: change.new for change in part.changes}


def test_buffer_and_versions_that_rest_on_changed_rewards(mill, grader, compare):
    """Two of four rollouts of version 2 change; version 3 goes back to it; version 1 is clean."""
    mill.base()
    mill.play("a", ["1.0", "0.0"])
    mill.play("b", ["0.5", "0.5"])
    mill.train(2)
    mill.promote(2, 1)
    mill.train(3, parent=2, rollout_ids=())
    found = compare(grader(2, mended=True)).impact
    assert found.in_buffer == {"default": 2}
    assert [(v.version, v.touched, v.rollouts, v.descends_from) for v in found.versions] == [
        (2, 2, 4, None),
        (3, 0, 0, 2),
    ]
    assert found.champions == {"policy": (2, 1)}


def test_a_grader_that_no_reward_names_changes_no_reward(mill, compare):
    """Its grades change, nothing else does."""
    from millstream.graders.registry import Grader

    mill.play("a", ["1.0", "0.0"])
    found = compare(Grader("always", lambda _: 0.0, epoch="always@2"))
    (part,) = found.lineages
    assert (part.named, part.changed, found.grades, found.impact.runs) == (False, 0, {"lowered": 2}, 0)
