"""A reward's declared range: stored grades stay raw, a reward outside it is none, and trackers see [0, 1]."""

from __future__ import annotations

import json

import pytest

from millstream.adapters.clock import ManualClock
from millstream.adapters.sqlite import open_sqlite
from millstream.capture.importers.base import Options, import_into
from millstream.console.catalog import grade_events
from millstream.console.families import Asked, families
from millstream.console.graded import grade_rows
from millstream.console.measures import figures
from millstream.errors import SettingsError
from millstream.graders.reward import Formula
from millstream.graders.running import GraderSet
from millstream.recalls import NONE
from millstream.settings import BufferSettings, RewardSettings, Settings
from millstream.streams.admission import Shares
from millstream.streams.assembly import Assembler
from millstream.streams.buffering import BufferingStage
from millstream.streams.driving import step
from millstream.streams.grading import GradingStage
from millstream.streams.learnability import idle_families
from millstream.streams.rewards import RewardBook
from millstream.streams.runner import StageRunner

LOW, HIGH = -1.5, 2.0


@pytest.fixture
def imported(data, tmp_path):
    """Every run of nemo_gym, imported and graded by what its environment said; and the rewards of the files."""
    paths = sorted((data / "nemo_gym").glob("**/*.jsonl"))
    if not paths:
        pytest.skip("no nemo_gym files")
    embedded = open_sqlite(tmp_path / "log.db", clock=ManualClock())
    log, store = embedded
    import_into(log, paths, Options())
    runners = [
        StageRunner(Assembler(Settings().assembly, topic_id=log.topic_id("telemetry")), log, store),
        StageRunner(GradingStage(GraderSet([]), topic_id=log.topic_id("trajectories")), log, store),
    ]
    while step(runners):
        pass
    yield log, store, paths
    embedded.close()


def told(paths):
    """The rewards that the files tell, row by row."""
    found = []
    for path in paths:
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                row = json.loads(line)
            except ValueError:
                continue
            reward = row.get("reward") if isinstance(row, dict) else None
            if isinstance(reward, int | float) and not isinstance(reward, bool):
                found.append(float(reward))
    return found


def rewards_of(log, formula):
    """Every run's reward by the formula."""
    book = RewardBook(formula, NONE)
    book.take(grade_events(log))
    return list(book.rewards())


def test_rewards_from_minus_one_and_a_half_to_two_pass_through_unclipped(imported):
    """What environments said is what is stored; in the declared range it is the reward, to the last digit. One
    environment says −100, which is outside: no reward, with the reason, and neither −1.5 nor −100.
    """
    log, _, paths = imported
    stored = {r["score"] for r in grade_rows(log) if r["grader"] == "feedback" and r["status"] == "scored"}
    assert stored == set(told(paths))
    formula = Formula("feedback", LOW, HIGH)
    runs = rewards_of(log, formula)
    rewards = [run.reward for run in runs if run.reward is not None]
    assert set(rewards) == {value for value in stored if LOW <= value <= HIGH}
    assert min(rewards) == pytest.approx(-1.4993560821212417, abs=0)
    assert max(rewards) == 2.0
    assert {run.why for run in runs if run.status == "no value"} == {"the formula gives -100.0, outside [-1.5, 2.0]"}
    assert (formula.to_unit(LOW), formula.to_unit(HIGH)) == (0.0, 1.0)
    assert all(0.0 <= formula.to_unit(reward) <= 1.0 for reward in rewards)


def test_outside_the_range_there_is_no_reward_and_nothing_is_clamped(imported):
    """With the range [0, 1] a reward of 2 is refused with its reason; what is admitted is what was said."""
    log, store, _ = imported
    settings = RewardSettings(formula="feedback")
    buffer = BufferingStage(BufferSettings(near_duplicate=1.0), settings)
    stage = StageRunner(buffer, log, store, every_partition=True)
    while step([stage]):
        pass
    outside = [run for run in rewards_of(log, Formula.of(settings)) if run.status == "no value"]
    assert {-1.4993560821212417, -100.0, 2.0} <= {float(run.why.split("gives ")[1].split(",")[0]) for run in outside}
    assert all(0.0 <= entry.reward <= 1.0 for entry in buffer.book.ledger.entries.values())
    assert buffer.book.ledger.entries
    assert families(log, [Asked("policy", settings, 32)])


@pytest.mark.parametrize(("low", "high"), [(1.0, 1.0), (2.0, 1.0), (float("-inf"), 1.0), (0.0, float("nan"))])
def test_a_range_is_finite_and_goes_up(low, high):
    """Else trackers and e-processes would have nothing to map to."""
    with pytest.raises(SettingsError, match="finite, low before high"):
        Formula("feedback", low, high)


@pytest.mark.parametrize(
    ("low", "high", "success", "of"),
    [
        (LOW, HIGH, "middle", {-1.5: False, 0.25: False, 0.26: True, 2.0: True}),
        (LOW, HIGH, -1.0, {-1.5: False, -1.0: True, 0.0: True}),
        (LOW, HIGH, 2.0, {1.99: False, 2.0: True}),
        (0.0, 1.0, "middle", {0.5: False, 0.51: True}),
        (0.0, 1.0, 0.9, {0.89: False, 0.9: True}),
    ],
)
def test_one_success_for_every_reader(mill, low, high, success, of):
    """`baseline`, `metrics`, the buffer's shares, what is learnable and the flips of a regrade ask one threshold."""
    reward = RewardSettings(formula="feedback", low=low, high=high, success=success)
    formula = Formula.of(reward)
    assert {value: formula.succeeds(value) for value in of} == of
    won = sum(of.values())
    for n, value in enumerate(of):
        mill.play(f"g{n}", ["0.0"], task=f"t{n}", world=f"w{n}", family="f", version=1)
        mill.feedback(f"g{n}0", value)
    (family,) = families(mill.log, [Asked("policy", reward, 1)])
    assert family.success == pytest.approx(won / len(of))
    (found,) = [row for row in figures(mill.log, formula, NONE) if row.metric == "success"]
    assert found.value == pytest.approx(won / len(of))
    idle = idle_families([("f", value) for value in of], formula.success_at, len(of))
    assert idle == ({} if 0 < won < len(of) else {"f": "always 1" if won else "always 0"})
    shares = Shares(BufferSettings(), reward)
    for value in of:
        shares.count(value, 1)
    assert (shares.successes, shares.total) == (won, len(of))


@pytest.mark.parametrize("success", [-1.5, 2.01, float("nan"), -2.0])
def test_a_success_that_no_reward_or_every_reward_is_is_refused(success):
    """It lies above the low end and at most at the high one."""
    with pytest.raises(SettingsError, match="must lie above"):
        Formula.of(RewardSettings(low=LOW, high=HIGH, success=success))


def test_how_much_rewards_vary_is_told_on_one_scale(mill):
    """Half of the runs at each end is a variance of 1/4 in [0, 1] and in [-1.5, 2]; the mean stays raw."""
    wide = RewardSettings(formula="feedback", low=LOW, high=HIGH)
    for n, value in enumerate((LOW, HIGH, LOW, HIGH)):
        mill.play(f"g{n}", ["0.0"], task=f"t{n}", world=f"w{n}", family="f", version=1)
        mill.feedback(f"g{n}0", value)
    (row,) = families(mill.log, [Asked("policy", wide, 32)])
    assert (row.variance, row.mean, row.lowest, row.highest) == (pytest.approx(0.25), 0.25, LOW, HIGH)
