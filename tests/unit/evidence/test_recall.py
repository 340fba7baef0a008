"""A recall takes evidence out of the buffer and marks what learned from it; a new epoch brings it back."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from millstream.bootstrap.evidence import recall, recall_target
from millstream.bootstrap.plans import plan_of
from millstream.console.status import status
from millstream.console.why import why
from millstream.console.why_text import render
from millstream.deploy.promotion import promote, rollback
from millstream.deploy.recall import lift_events
from millstream.errors import SettingsError
from millstream.loading import Loaded
from millstream.policy import PolicyPromoted
from millstream.rollout import RolloutRefused


@pytest.fixture
def take_back(mill, tmp_path):
    """``millstream recall`` on the mill; what it says."""
    runtime = SimpleNamespace(log=mill.log, plans=(plan_of(Loaded(mill.settings, tmp_path, {})),))

    def run(named, *, epochs=(), span=(0, 0), reason="it was wrong", dry_run=False, trajectory=False):
        target = recall_target(mill.log, named, epochs, span, run=trajectory)
        found = recall(runtime, target, reason, dry_run=dry_run)
        mill.run()
        return found

    return run


def refused(mill):
    return {(d.trajectory_id, d.reason, d.detail) for d in mill.decisions() if isinstance(d, RolloutRefused)}


def test_a_grader_is_taken_out_of_the_buffer(mill, take_back):
    """All its rollouts leave by events, each refused with the recall's reason; the books balance."""
    mill.play("a", ["1.0", "0.0"])
    found = take_back("correct")
    assert (found.written, found.grades, found.impact.in_buffer) == (True, {"correct@1": 2}, {"default": 2})
    assert mill.rewards() == {}
    assert refused(mill) == {(f"a{n}", "recalled", "recalled: it was wrong") for n in (0, 1)}
    books = mill.audit()
    assert books.balanced, books.differences


def test_a_group_is_decided_once(mill, take_back):
    """However many of its members rest on the grader."""
    mill.play("a", ["1.0", "0.0", "1.0", "0.0"])
    before = len(mill.decisions())
    take_back("correct")
    assert [type(d).__name__ for d in mill.decisions()[before:]] == [
        "RolloutsEvicted",
        "GroupClosed",
        *["RolloutRefused"] * 4,
    ]


def test_what_a_recalled_grader_goes_on_to_grade_is_no_reward_either(mill, take_back):
    """Runs after the recall are refused until another epoch grades them."""
    mill.play("a", ["1.0", "0.0"])
    take_back("correct")
    mill.play("b", ["1.0", "0.0"])
    assert mill.rewards() == {}
    assert {reason for _, reason, _ in refused(mill)} == {"recalled"}


def test_a_mended_grader_brings_the_runs_back(mill, grader, take_back):
    """Recall, mend, regrade: the runs enter under the new epoch, once."""
    mill.play("a", ["1.0", "0.0"])
    take_back("correct")
    report = mill.regrade(grader(2, mended=True))
    assert report.regraded == 2
    assert mill.rewards() == {"a0": 0.0, "a1": 1.0}
    assert mill.audit().balanced


def test_one_run_is_taken_out_and_its_group_goes_on_without_it(mill, take_back):
    """The others keep a reward, with advantages over three."""
    mill.play("a", ["1.0", "0.0", "1.0", "0.5"])
    take_back("a1")
    assert mill.rewards() == {"a0": 1.0, "a2": 1.0, "a3": 0.5}
    assert sum(e.advantage for e in mill.buffer.entries.values()) == pytest.approx(0)
    assert refused(mill) == {("a1", "recalled", "recalled: it was wrong")}
    assert mill.audit().balanced


def test_only_grades_known_since(mill, take_back):
    """A judge that broke at noon: what it said in the morning stands."""
    mill.play("a", ["1.0", "0.0"])
    mill.clock.advance(3_600_000)
    noon = mill.log.now_ms()
    mill.play("b", ["1.0", "0.0"])
    found = take_back("correct", span=(noon, 0))
    assert found.grades == {"correct@1": 2}
    assert set(mill.rewards()) == {"a0", "a1"}


def test_since_and_the_same_epoch_again(mill, grader, take_back):
    """The judge is well again, its epoch the same: a regrade makes another attempt, but the recall covers it
    too, since it was known later; another epoch is needed.
    """
    mill.play("a", ["1.0", "0.0"])
    take_back("correct", span=(1, 0))
    assert mill.regrade(grader(1)).regraded == 2
    assert mill.rewards() == {}
    mill.regrade(grader(2))
    assert set(mill.rewards()) == {"a0", "a1"}


def test_a_span_that_is_over(mill, grader, take_back):
    """The judge was ill for an hour: what it said then is taken back, and its next attempt counts."""
    mill.play("a", ["1.0", "0.0"])
    mill.clock.advance(3_600_000)
    found = take_back("correct", span=(0, mill.log.now_ms()))
    assert (found.grades, mill.rewards()) == ({"correct@1": 2}, {})
    assert mill.regrade(grader(1)).regraded == 2
    assert mill.rewards() == {"a0": 1.0, "a1": 0.0}
    mill.play("b", ["1.0", "0.0"])
    assert set(mill.rewards()) == {"a0", "a1", "b0", "b1"}


def test_versions_that_learned_from_it_and_from_each_other_are_marked(mill, take_back):
    """2 learned from it, 3 started from 2, 4 learned from other runs of version 1: clean."""
    mill.base()
    mill.play("a", ["1.0", "0.0"])
    mill.train(2)
    mill.train(3, parent=2, rollout_ids=())
    mill.train(4, rollout_ids=())
    found = take_back("correct")
    assert [(v.version, v.touched, v.descends_from) for v in found.impact.versions] == [(2, 2, None), (3, 0, 2)]
    versions = mill.ledger().lineages["policy"].versions
    assert {n: v.stage for n, v in versions.items()} == {
        1: "champion",
        2: "quarantined",
        3: "quarantined",
        4: "candidate",
    }
    assert versions[2].quarantined == "it was wrong"


def test_a_champion_goes_on_serving_until_somebody_rolls_back(mill, take_back):
    """It is marked, the mend is named, and rolling back goes to the newest clean champion by itself."""
    mill.base()
    mill.train(2, rollout_ids=())
    mill.promote(2, 1)
    mill.play("a", ["1.0", "0.0"])
    mill.train(3, parent=2)
    mill.promote(3, 2)
    mill.train(4, parent=3, rollout_ids=())
    mill.promote(4, 3)
    found = take_back("correct")
    assert found.impact.champions == {"policy": (4, 2)}
    assert "millstream rollback --lineage policy --to 2" in found.mends[0]
    assert mill.ledger().champion("policy").version == 4
    assert rollback(mill.log, "policy", "recalled").version == 2
    assert mill.ledger().lineages["policy"].versions[4].stage == "quarantined"


def test_what_is_quarantined_is_not_promoted_by_accident(mill, take_back):
    """Neither by hand without saying so, nor by a gate that decided before it knew."""
    mill.base()
    mill.play("a", ["1.0", "0.0"])
    mill.train(2)
    take_back("correct")
    with pytest.raises(SettingsError, match="quarantined: it was wrong"):
        promote(mill.log, "policy", 2, "by hand")
    mill.policy(PolicyPromoted(id="g2", lineage="policy", version=2, expected_champion=1, reason="better", by="gate"))
    assert mill.ledger().champion("policy").version == 1
    assert promote(mill.log, "policy", 2, "by hand", quarantined=True).version == 2


def test_a_training_under_way_makes_a_marked_version(mill, take_back):
    """Its rollouts stay leased until it ends; what it makes is quarantined, and they do not come back."""
    mill.base()
    mill.play("a", ["1.0", "0.0"])
    mill.train(2, finish=False)
    found = take_back("correct")
    assert [(t.training_id, t.touched) for t in found.impact.trainings] == [("training-2", 2)]
    assert set(mill.rewards()) == {"a0", "a1"}
    mill.finish(2)
    assert mill.ledger().lineages["policy"].versions[2].stage == "quarantined"
    assert mill.rewards() == {}
    assert mill.audit().balanced


def test_why_and_status_say_so(mill, take_back):
    """Of a quarantined champion: why it is, how many of its rollouts, and what to do; the epoch is named."""
    mill.base()
    mill.play("a", ["1.0", "0.0"])
    mill.train(2)
    mill.promote(2, 1)
    before = why(mill.log, 2, "policy")
    assert (before.epochs, [r.recalled for r in before.rollouts]) == ({"correct@1": 2}, ["", ""])
    take_back("correct")
    found = why(mill.log, 2, "policy")
    assert [r.recalled for r in found.rollouts] == ["it was wrong"] * 2
    text = render(found)
    assert "QUARANTINED: it was wrong" in text
    assert "2 of them rest on evidence that was recalled since" in text
    notes = status(mill.log, mill.store.positions(), {}, policy_base="x").notes
    assert any("grades of correct@1 are recalled (it was wrong; `millstream recall --undo" in note for note in notes)
    assert any("version 2 of policy serves and is quarantined" in note for note in notes)


def test_weighing_a_recall_takes_nothing_back(mill, take_back):
    """A dry run says the same and writes nothing; recalling twice writes once."""
    mill.play("a", ["1.0", "0.0"])
    weighed = take_back("correct", dry_run=True)
    assert (weighed.written, weighed.impact.in_buffer) == (False, {"default": 2})
    assert set(mill.rewards()) == {"a0", "a1"}
    take_back("correct")
    end = mill.log.bounds("policy-events")
    again = take_back("correct")
    assert (again.written, again.stood) == (False, True)
    assert mill.log.bounds("policy-events") == end


def test_a_recall_that_was_a_mistake_is_undone(mill, take_back):
    """The rollouts come back under new ids, the versions are what they were, and another recall still stands."""
    mill.base()
    mill.play("a", ["1.0", "0.0", "0.5"])
    mill.train(2)
    mill.train(3, parent=2, rollout_ids=())
    before = set(mill.buffer.entries)
    found = take_back("correct")
    other = take_back("a2")
    assert mill.ledger().lineages["policy"].versions[3].stage == "quarantined"
    mill.policy(*lift_events(mill.ledger(), ["policy"], found.id, "it was right"))
    assert mill.rewards() == {"a0": 1.0, "a1": 0.0}
    assert not before & set(mill.buffer.entries)
    assert mill.ledger().lineages["policy"].versions[2].stage == "quarantined"
    mill.policy(*lift_events(mill.ledger(), ["policy"], other.id, "so was this"))
    assert mill.rewards() == {"a0": 1.0, "a1": 0.0, "a2": 0.5}
    stages = {n: (v.stage, v.quarantined) for n, v in mill.ledger().lineages["policy"].versions.items()}
    assert stages == {1: ("champion", ""), 2: ("candidate", ""), 3: ("candidate", "")}
    books = mill.audit()
    assert books.balanced, books.differences
    with pytest.raises(SettingsError, match="those that do: none"):
        lift_events(mill.ledger(), ["policy"], found.id, "")


def test_feedback_can_be_recalled(mill, take_back, tmp_path):
    """What people said is evidence like any other."""
    mill.play("a", ["1.0"])
    mill.feedback("a0", 1.0)
    found = take_back("feedback")
    assert found.grades == {"feedback@1": 1}


def test_a_restart_keeps_recalls(mill, grader, take_back):
    """A stage that starts from its snapshot goes on refusing what was recalled."""
    mill.play("a", ["1.0", "0.0"])
    take_back("correct")
    mill.again(grader(1))
    mill.play("b", ["1.0", "0.0"])
    assert mill.rewards() == {}


@pytest.mark.parametrize(
    ("named", "more", "told"),
    [
        ("nobody", {}, "no run in the log and no grader that has graded; those that have: always, correct"),
        ("correct", {"epochs": ("correct@9",)}, "its epochs: correct@1"),
        ("a0", {"epochs": ("correct@1",)}, "are for graders"),
        ("correct", {"trajectory": True}, "no run in the log"),
    ],
)
def test_names_that_mean_nothing_are_refused(mill, take_back, named, more, told):
    """With what is known."""
    mill.play("a", ["1.0"])
    with pytest.raises(SettingsError, match=told):
        take_back(named, **more)
