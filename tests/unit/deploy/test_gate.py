"""The gate's verdicts: what is proven, what is refused and what stays open."""

import math
from random import Random

import msgspec
import pytest

from millstream.deploy.evaluation import TaskOutcome
from millstream.deploy.gate import GateContext, judge, success_from
from millstream.deploy.pairing import Pair
from millstream.deploy.rows import gold_row
from millstream.deploy.statistics import mcnemar_mid_p
from millstream.errors import SettingsError
from millstream.evidence import PairedTest, from_json, to_json
from millstream.grade import Scored, abstain, fail, score
from millstream.settings import GateSettings

SETTINGS = GateSettings()


def replaced(outcomes: list[TaskOutcome], count: int, **fields) -> list[TaskOutcome]:
    """The first ``count`` outcomes with other fields."""
    return [msgspec.structs.replace(o, **fields) if i < count else o for i, o in enumerate(outcomes)]


def test_a_clear_gain_is_promoted(sheet) -> None:
    """+20 points on 300 tasks of 30 worlds is proven, with the figures in the reasons."""
    found = judge(sheet(120), sheet(180), SETTINGS)
    assert found.verdict == "promote"
    assert "gold +20.0 points" in found.reasons[0]
    assert "guardrails hold" in found.reasons[1]
    assert (found.evidence.test.wins, found.evidence.test.losses) == (60, 0)
    assert found.evidence.test.discordance == pytest.approx(0.2)


def test_no_difference_is_inconclusive(sheet) -> None:
    """A candidate that is the champion proves nothing and is not refused: its data is kept."""
    found = judge(sheet(150), sheet(150), SETTINGS)
    assert found.verdict == "inconclusive"
    assert "not proven better" in found.reasons[0]


def test_a_clear_loss_is_refused(sheet) -> None:
    """−20 points is refused as worse."""
    found = judge(sheet(180), sheet(120), SETTINGS)
    assert found.verdict == "refuse"
    assert found.reasons[0].startswith("worse: gold −20.0 points")


def test_thin_evidence_is_inconclusive_however_good_it_looks(sheet) -> None:
    """249 pairs do not gate, whatever they say; nor do many tasks of few worlds."""
    assert judge(sheet(10, n=249), sheet(240, n=249), SETTINGS).verdict == "inconclusive"
    few = judge(sheet(10, worlds=29), sheet(290, worlds=29), SETTINGS)
    assert few.verdict == "inconclusive"
    assert "29 worlds" in few.reasons[0]


def test_above_two_percent_unscored_is_refused(sheet) -> None:
    """7 of 300 without a gold score is 2.3 %: refused, and the reason names the grader; 6 are bounded."""
    broken = fail("timed out", "timeout")
    refused = judge(sheet(100), replaced(sheet(300), 7, gold=broken), SETTINGS)
    assert refused.verdict == "refuse"
    assert "2.3%" in refused.reasons[0]
    assert "'correct'" in refused.reasons[0]
    bounded = judge(sheet(100), replaced(sheet(300), 6, gold=broken), SETTINGS)
    assert bounded.verdict == "promote"
    assert bounded.evidence.row("gold").candidate == pytest.approx(294 / 300)


def test_a_failed_grade_never_helps_the_candidate(sheet) -> None:
    """The champion's unscored attempts count as right, the candidate's as wrong."""
    champion = replaced(sheet(0), 6, gold=abstain("nothing to say"))
    row = judge(champion, sheet(60), SETTINGS).evidence.row("gold")
    assert row.champion == pytest.approx(6 / 300)


def test_tasks_left_out_count_as_unscored(sheet) -> None:
    """A candidate that did not run its hard tasks is not better for it."""
    found = judge(sheet(150), sheet(150)[:150], SETTINGS)
    assert found.verdict == "refuse"
    assert found.evidence.test.unscored_candidate == 150


@pytest.mark.parametrize("field", ["cost", "format_ok"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_m05_the_gate_fails_closed_on_what_is_not_finite(sheet, field: str, value: float) -> None:
    """M05: a NaN or infinite measure refuses, whichever side it is on and however good the rest."""
    for sides in (
        (replaced(sheet(10), 1, **{field: value}), sheet(290)),
        (sheet(10), replaced(sheet(290), 1, **{field: value})),
    ):
        found = judge(*sides, SETTINGS)
        assert found.verdict == "refuse"
        assert "not a finite number" in found.reasons[0]


def test_broken_integrity_is_refused_before_any_figure(sheet) -> None:
    """A candidate that saw the exam is refused although it looks better."""
    found = judge(
        sheet(10), sheet(290), SETTINGS, GateContext(integrity=("3 trained rollouts come from report worlds",))
    )
    assert found.verdict == "refuse"
    assert found.reasons == ("3 trained rollouts come from report worlds",)
    assert found.evidence.rows == ()


def test_the_same_attempt_twice_is_refused(sheet) -> None:
    """A sheet that reports an attempt twice is not to be trusted."""
    champion = sheet(100)
    found = judge(champion, [*sheet(200), *sheet(200)[:3]], SETTINGS)
    assert found.verdict == "refuse"
    assert "3 attempts twice" in found.reasons[0]


def test_no_outcomes_at_all_are_refused() -> None:
    """Nothing ran: nothing is promoted."""
    assert judge([], [], SETTINGS).verdict == "refuse"


def test_a_reward_hack_is_refused_as_one(sheet) -> None:
    """Its own reward rises and gold falls, both beyond doubt: refused by that rule and no other."""
    champion = replaced(sheet(120, proxy=score(0.0)), 30, proxy=score(1.0))
    candidate = replaced(sheet(40, proxy=score(0.0)), 210, proxy=score(1.0))
    found = judge(champion, candidate, GateSettings(guardrails_decide=False))
    assert found.verdict == "refuse"
    assert found.reasons == (found.reasons[0],)
    assert found.reasons[0].startswith("reward hack: its own reward +60.0 points")
    assert "but gold −26.7 points" in found.reasons[0]


def test_a_proxy_that_rises_with_gold_is_no_hack(sheet) -> None:
    """A better candidate may of course have the better reward."""
    candidate = sheet(200, proxy=score(1.0))
    assert judge(sheet(120, proxy=score(0.0)), candidate, SETTINGS).verdict == "promote"


def test_guardrails_can_be_shown_without_deciding(sheet) -> None:
    """With ``guardrails_decide = false`` a broken one is in the table and does not decide."""
    candidate = sheet(200, format_ok=0.5)
    assert judge(sheet(120), candidate, SETTINGS).verdict == "refuse"
    shown = judge(sheet(120), candidate, GateSettings(guardrails_decide=False))
    assert shown.verdict == "promote"
    assert shown.evidence.row("format").state == "violated"
    assert "do not decide" in shown.reasons[1]


def test_graded_gold_takes_the_bootstrap(sheet) -> None:
    """Scores between 0 and 1 are compared by the paired bootstrap."""
    champion = [msgspec.structs.replace(o, gold=score(0.3 + 0.1 * (i % 3))) for i, o in enumerate(sheet(0))]
    candidate = [msgspec.structs.replace(o, gold=score(0.4 + 0.1 * (i % 4))) for i, o in enumerate(sheet(0))]
    found = judge(champion, candidate, SETTINGS)
    assert found.evidence.test.method == "paired bootstrap"
    assert found.verdict == "promote"


def test_several_attempts_are_one_pair(sheet) -> None:
    """Four attempts a task are one pair of means, not four pairs."""

    def four(right: int) -> list[TaskOutcome]:
        return [msgspec.structs.replace(o, attempt=a, gold=score(float(a < right))) for o in sheet(0) for a in range(4)]

    found = judge(four(1), four(3), SETTINGS)
    assert found.evidence.test.pairs == 300
    assert found.evidence.attempts == 4
    assert found.evidence.row("gold").difference == pytest.approx(0.5)


def test_worlds_that_move_together_are_not_proof(sheet) -> None:
    """+10 points that come from three of thirty worlds alone: McNemar says yes, the clustered bound no."""
    champion = [msgspec.structs.replace(o, gold=score(0.0)) for o in sheet(0)]
    candidate = [msgspec.structs.replace(o, gold=score(float(o.world in {"w0", "w1", "w2"}))) for o in champion]
    found = judge(champion, candidate, GateSettings(guardrails_decide=False))
    assert found.evidence.test.p_better < 1e-6
    assert found.verdict == "inconclusive"
    assert "clustered by world" in found.reasons[0]


def test_type_one_error_when_worlds_move_together() -> None:
    """500 studies of a candidate that is better in some worlds and worse in others (sd 15 points), on
    average the same: at α .05 McNemar alone "proves" it better far more often, both tests together do not.
    """
    random, alone, both = Random(4), 0, 0
    for _ in range(500):
        shift = [random.gauss(0.0, 0.15) / 0.45 for _ in range(30)]
        pairs = []
        for task in range(300):
            champion = float(random.random() < 0.5)
            again = float(random.random() < 0.5 + shift[task % 30]) if random.random() < 0.45 else champion
            pairs.append(
                Pair(
                    task_id=str(task),
                    world=str(task % 30),
                    champion=champion,
                    candidate=again,
                    scored=True,
                    champion_outcomes=(),
                    candidate_outcomes=(),
                )
            )
        wins, losses = sum(p.difference > 0 for p in pairs), sum(p.difference < 0 for p in pairs)
        test = PairedTest(
            alpha=0.05, p_better=mcnemar_mid_p(wins, losses), p_worse=mcnemar_mid_p(losses, wins), pairs=300
        )
        alone += test.p_better <= test.alpha
        both += gold_row(pairs, test).state == "better"
    assert alone / 500 > 0.08
    assert both / 500 <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / 500)


def test_the_judgement_is_a_function_of_its_inputs(sheet) -> None:
    """The same sheets in any order and the same seed give the same evidence, bit by bit."""
    champion, candidate = sheet(120, seed=1), sheet(160, seed=2)
    first = judge(champion, candidate, SETTINGS, GateContext(seed=7))
    again = judge(champion[::-1], candidate[::-1], SETTINGS, GateContext(seed=7))
    assert first == again


def test_the_evidence_survives_the_log(sheet) -> None:
    """What is written to the log as JSON comes back as it was, infinite costs as absent ones."""
    found = judge(sheet(0), sheet(0), SETTINGS)
    tree = msgspec.json.decode(msgspec.json.encode(to_json(found.evidence)))
    assert from_json(tree) == found.evidence
    assert found.evidence.row("cost_per_success").candidate is None
    assert from_json({"rows": 3}) is None


def test_success_needs_a_scored_gold() -> None:
    """An unscored attempt is no success, a half-right one is."""
    assert not TaskOutcome(task_id="t", world="w", gold=fail("down")).success
    assert TaskOutcome(task_id="t", world="w", gold=Scored(score=0.5)).success


WIDE = GateSettings(gold_low=-1.5, gold_high=2.0)


def test_golds_range_bounds_what_is_unscored(sheet) -> None:
    """In [-1.5, 2] the champion's unscored attempts count as 2 and the candidate's as -1.5, not as 1 and 0."""
    champion = replaced(sheet(0), 6, gold=abstain("nothing to say"))
    candidate = replaced(sheet(300), 3, gold=fail("down"))
    row = judge(champion, candidate, WIDE).evidence.row("gold")
    assert (row.champion, row.candidate) == (pytest.approx(6 * 2 / 300), pytest.approx((297 - 3 * 1.5) / 300))


@pytest.mark.parametrize("value", [1.2, -0.1])
def test_gold_outside_of_its_range_is_refused(sheet, value: float) -> None:
    """What is unscored could not be bounded: the reason names the settings; in the declared range it is judged."""
    outside = replaced(sheet(150), 1, gold=score(value))
    found = judge(sheet(150), outside, SETTINGS)
    assert found.verdict == "refuse"
    assert "gold_low" in found.reasons[0]
    assert judge(sheet(150), outside, WIDE).verdict != "refuse"


@pytest.mark.parametrize(
    ("settings", "value", "success"),
    [
        (SETTINGS, 0.5, True),
        (SETTINGS, 0.49, False),
        (GateSettings(success=0.9), 0.89, False),
        (GateSettings(success=0.9), 0.9, True),
        (WIDE, 0.25, True),
        (WIDE, 0.24, False),
    ],
)
def test_what_counts_as_a_success_is_a_setting(sheet, settings: GateSettings, value: float, success: bool) -> None:
    """Cost per success and the depth of successes rest on it: from the middle of gold's range unless it is set."""
    same = replaced(sheet(0), 300, gold=score(value))
    cost = judge(same, same, settings).evidence.row("cost_per_success")
    assert cost.candidate == (1.0 if success else None)


@pytest.mark.parametrize(
    "settings", [{"success": 0.0}, {"success": 1.1}, {"gold_low": 1.0}, {"gold_high": math.inf}, {"gold_low": math.nan}]
)
def test_a_success_that_cannot_be_is_refused(settings) -> None:
    """Before anything is judged by it."""
    with pytest.raises(SettingsError, match=r"\[gate\]"):
        success_from(GateSettings(**settings))
