"""Learnability: what `baseline` says of families is what the trigger leaves out."""

from __future__ import annotations

import pytest

from millstream.console.families import Asked, families, render
from millstream.settings import RewardSettings, TrainerSettings, TriggerSettings
from millstream.streams.buffer_state import BufferLedger
from millstream.streams.learnability import FamilyCount, idle_families
from millstream.streams.training_request import request_by_hand

REWARD = RewardSettings(formula="correct")


@pytest.mark.parametrize(
    ("runs", "successes", "least", "told"),
    [
        (32, 0, 32, "always 0"),
        (32, 32, 32, "always 1"),
        (32, 31, 32, "yes"),
        (31, 31, 32, "too few runs"),
        (31, 0, 32, "too few runs"),
        (2, 1, 32, "yes"),
        (1000, 1000, 0, "too few runs"),
        (0, 0, 32, "too few runs"),
    ],
)
def test_what_a_family_teaches(runs, successes, least, told):
    """Only enough runs that all went one way say that there is nothing to learn; with 0 nothing does."""
    assert FamilyCount(runs, successes).teaches(least) == told


def test_runs_without_a_family_are_never_judged():
    """All that people liked is no family."""
    runs = [("", 1.0)] * 100 + [("sum", 1.0)] * 100 + [("ratio", 0.0)] * 100 + [("mixed", 1.0), ("mixed", 0.0)] * 50
    assert idle_families(runs, 0.5, 32) == {"ratio": "always 0", "sum": "always 1"}


def play(mill):
    """Version 1 always solves sums, never ratios, half the shares; there is one run of growth."""
    mill.base()
    for n in range(2):
        mill.play(f"s{n}", ["1.0"] * 4, family="sum", world=f"w{n}")
        mill.play(f"r{n}", ["0.0"] * 4, family="ratio", world=f"w{n}")
        mill.play(f"h{n}", ["1.0", "0.0", "1.0", "0.0"], family="share", world=f"w{n}")
    mill.play("g", ["1.0", "broken", "0.5"], family="growth", world="w0")


def test_baseline_tells_success_variance_and_what_teaches(mill):
    """Each family with its denominators; the failed run is no reward and no zero."""
    play(mill)
    rows = {row.family: row for row in families(mill.log, [Asked("policy", REWARD, 8)])}
    assert {name: row.teaches for name, row in rows.items()} == {
        "growth": "yes",
        "ratio": "always 0",
        "share": "yes",
        "sum": "always 1",
    }
    share, growth = rows["share"], rows["growth"]
    assert (share.success, share.variance, share.lowest, share.highest) == (0.5, 0.25, 0.0, 1.0)
    assert share.low < 0.5 < share.high
    assert (growth.runs, growth.rewarded, growth.success, growth.mean, growth.low) == (3, 2, 0.5, 0.75, None)
    assert growth.variance == pytest.approx(0.0625)
    assert share.epochs == ("correct=correct@1",)
    text = render(list(rows.values()))
    assert "they teach nothing: ratio (always 0), sum (always 1)" in text


def test_only_the_current_policys_runs_count(mill):
    """What version 1 always failed may be what version 2 learns from."""
    play(mill)
    mill.train(2, rollout_ids=())
    mill.promote(2, 1)
    mill.play("new", ["1.0", "0.0"], family="ratio", version=2)
    (row,) = families(mill.log, [Asked("policy", REWARD, 8)])
    assert (row.policy_version, row.family, row.runs, row.teaches) == (2, "ratio", 2, "yes")


def test_held_out_runs_are_not_what_is_trained_on(mill):
    """A family of the exam is no family of the baseline."""
    mill.play("e", ["1.0"], family="sum", split="held_out")
    assert families(mill.log, [Asked("policy", REWARD, 8)]) == []


def asked(mill, **settings):
    trigger = TriggerSettings(**settings)
    request = request_by_hand(mill.log, trigger, TrainerSettings(), "policy", "default")
    entries = mill.buffer.entries
    return request, {entries[i].family for i in request.rollout_ids}


def test_a_training_leaves_out_what_teaches_nothing(mill):
    """Sums and ratios stay in the buffer and are not trained on; with 0 they are."""
    play(mill)
    request, found = asked(mill, learnable_runs=8)
    assert found == {"share", "growth"}
    assert len(request.rollout_ids) == 10
    assert asked(mill, learnable_runs=0)[1] == {"share", "growth", "sum", "ratio"}
    assert isinstance(mill.buffer, BufferLedger)


def test_a_buffer_of_solved_families_says_so(mill):
    """Nothing is left to ask for, and which families are the reason."""
    mill.base()
    for n in range(2):
        mill.play(f"s{n}", ["1.0"] * 4, family="sum")
    with pytest.raises(Exception, match=r"they teach nothing: sum \(always 1\)"):
        asked(mill, learnable_runs=8)
