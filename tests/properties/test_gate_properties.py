"""What must hold of the gate for any two outcome sheets."""

import math

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.deploy.evaluation import TaskOutcome
from millstream.deploy.gate import judge
from millstream.deploy.statistics import mcnemar_mid_p, paired_bootstrap
from millstream.grade import abstain, fail, score
from millstream.settings import GateSettings

SETTINGS = GateSettings(min_pairs=10, worlds=2, guardrails_decide=False, alpha=0.05)
MIRROR = {"promote": "refuse", "refuse": "promote", "inconclusive": "inconclusive"}

outcomes = st.builds(lambda right, cost: (float(right), cost), st.booleans(), st.floats(0, 10))
few = settings(max_examples=20)
"""For properties that judge twice: each judgement resamples 4,000 times."""
sheets = st.lists(st.tuples(outcomes, outcomes), min_size=10, max_size=40)


def sides(pairs) -> tuple[list[TaskOutcome], list[TaskOutcome]]:
    """Two sheets over the same tasks of four worlds."""
    made = [
        [
            TaskOutcome(task_id=f"{i:03}", world=f"w{i % 4}", gold=score(gold), cost=cost)
            for i, (gold, cost) in enumerate(side)
        ]
        for side in zip(*pairs, strict=True)
    ]
    return made[0], made[1]


@few
@given(sheets)
def test_swapping_the_sides_swaps_the_verdict(pairs) -> None:
    """Without guardrails and with every attempt scored: better one way is worse the other way."""
    left, right = sides(pairs)
    forth, back = judge(left, right, SETTINGS), judge(right, left, SETTINGS)
    assert back.verdict == MIRROR[forth.verdict]
    assert forth.evidence.test.p_better == back.evidence.test.p_worse
    assert math.isclose(forth.evidence.row("gold").difference, -back.evidence.row("gold").difference, abs_tol=1e-12)


@given(sheets, st.integers(0, 9), st.sampled_from([math.nan, math.inf, -math.inf]), st.booleans())
def test_one_value_that_is_not_finite_is_never_promoted(pairs, index: int, value: float, on_the_left: bool) -> None:
    """Fail closed, wherever the value is."""
    left, right = sides(pairs)
    side = left if on_the_left else right
    side[index] = msgspec.structs.replace(side[index], cost=value)
    assert judge(left, right, SETTINGS).verdict == "refuse"


@few
@given(sheets, st.sets(st.integers(0, 9), min_size=1, max_size=4), st.sampled_from([fail("x"), abstain("y")]))
def test_losing_a_candidates_grade_never_helps_it(pairs, lost: set[int], grade) -> None:
    """Unscored attempts of the candidate can only lower its gold."""
    left, right = sides(pairs)
    whole = judge(left, right, SETTINGS).evidence.row("gold").candidate
    cut = [msgspec.structs.replace(o, gold=grade) if i in lost else o for i, o in enumerate(right)]
    assert judge(left, cut, SETTINGS).evidence.row("gold").candidate <= whole


@few
@given(sheets, st.randoms(use_true_random=False))
def test_the_order_of_outcomes_does_not_matter(pairs, random) -> None:
    """Sheets are sets."""
    left, right = sides(pairs)
    mixed = [list(left), list(right)]
    for side in mixed:
        random.shuffle(side)
    assert judge(*mixed, SETTINGS) == judge(left, right, SETTINGS)


@given(st.integers(0, 400), st.integers(0, 400))
def test_mid_p_is_a_probability_with_a_mirror(wins: int, losses: int) -> None:
    """p(w, l) + p(l, w) = 1 wherever something differs, and more wins are a smaller p."""
    p = mcnemar_mid_p(wins, losses)
    assert 0 <= p <= 1
    if wins + losses:
        assert math.isclose(p + mcnemar_mid_p(losses, wins), 1)
        assert mcnemar_mid_p(wins + 1, losses) <= p


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=30), st.integers(0, 5))
def test_bootstrap_p_is_a_probability(differences, seed: int) -> None:
    """Never 0, never above 1, for any differences."""
    assert all(0 < p <= 1 for p in paired_bootstrap(differences, seed, draws=50))
