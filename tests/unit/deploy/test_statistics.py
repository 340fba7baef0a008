"""The gate's tests on numbers small enough to check by hand, and their type-I error by simulation."""

import math
from random import Random

import pytest

from millstream.deploy.statistics import (
    bounded_against_candidate,
    mcnemar_mid_p,
    non_inferiority_bound,
    paired_bootstrap,
)


@pytest.mark.parametrize(
    ("wins", "losses", "expected"),
    [
        (0, 0, 1.0),  # nothing differs
        (1, 0, 0.25),  # P(X = 1)/2 = 1/4
        (3, 0, 1 / 16),  # P(X = 3)/2 = (1/8)/2
        (2, 1, 0.3125),  # P(X = 3) + P(X = 2)/2 = 1/8 + 3/16
        (10, 2, 46 / 4096),  # (12 + 1) + 66/2 of 4096
        (2, 10, 1 - 46 / 4096),  # the mirror image
    ],
)
def test_mcnemar_mid_p_by_hand(wins: int, losses: int, expected: float) -> None:
    """One-sided mid-p of small counts, and its mirror image."""
    assert mcnemar_mid_p(wins, losses) == pytest.approx(expected, abs=1e-12)


def test_mcnemar_mid_p_is_exact_for_large_counts() -> None:
    """5,000 discordant pairs neither overflow nor underflow, and even ones give one half."""
    assert mcnemar_mid_p(2500, 2500) == pytest.approx(0.5, abs=1e-12)
    assert 0 < mcnemar_mid_p(2600, 2400) < 0.01


@pytest.mark.parametrize("alpha", [0.01, 0.05])
def test_mcnemar_type_one_error(alpha: float) -> None:
    """The exact chance of p ≤ alpha under the null: at alpha on average over 20–120 discordant pairs,
    nowhere above 1.5 alpha (the mid-p is not conservative at every count).
    """
    chances = [
        sum(math.comb(n, w) for w in range(n + 1) if mcnemar_mid_p(w, n - w) <= alpha) / 2**n for n in range(20, 121)
    ]
    assert max(chances) <= 1.5 * alpha
    assert sum(chances) / len(chances) <= alpha


def test_paired_bootstrap_sees_what_is_there() -> None:
    """A clear shift is significant one way and not the other, exactly mirrored; no difference gives 1."""
    random = Random(5)
    differences = [random.gauss(0.3, 0.5) for _ in range(80)]
    better, worse = paired_bootstrap(differences, seed=1, draws=999)
    assert better <= 0.002
    assert worse >= 0.99
    assert paired_bootstrap([-d for d in differences], seed=1, draws=999) == (worse, better)
    assert paired_bootstrap([0.0] * 50, seed=1) == (1.0, 1.0)
    assert paired_bootstrap([0.1] * 50, seed=1, draws=99) == (0.01, 1.0)


def test_paired_bootstrap_is_seeded_and_refuses_nan() -> None:
    """The same seed, the same p; a NaN is no difference."""
    values = [0.1, -0.2, 0.3, 0.05, -0.1]
    assert paired_bootstrap(values, seed=9, draws=199) == paired_bootstrap(values, seed=9, draws=199)
    with pytest.raises(ValueError, match="finite"):
        paired_bootstrap([0.1, math.nan], seed=1)


def test_paired_bootstrap_type_one_error() -> None:
    """200 null studies of 60 graded pairs, skewed: rejected at .05 in at most .05 + 3 standard errors."""
    random = Random(11)
    rejected = 0
    for study in range(200):
        differences = [random.betavariate(2, 5) - 2 / 7 for _ in range(60)]
        rejected += paired_bootstrap(differences, seed=study, draws=199)[0] <= 0.05
    assert rejected / 200 <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 200)


def test_non_inferiority_bound_is_one_sided() -> None:
    """A two-sided 90 % interval: each end is a one-sided 95 % bound (t(.95; 1) = 6.3138, se 2)."""
    bound = non_inferiority_bound([1, 3, 5, 7], ["a", "a", "b", "b"])
    assert bound.high == pytest.approx(4 + 2 * 6.313752, abs=1e-4)


def test_unscored_is_bounded_against_the_candidate() -> None:
    """The candidate's missing score is the lowest, the champion's the highest."""
    assert bounded_against_candidate(None, 1.0, 0.0, 1.0) == (1.0, 1.0)
    assert bounded_against_candidate(0.0, None, 0.0, 1.0) == (0.0, 0.0)
    assert bounded_against_candidate(None, None, -1.0, 2.0) == (2.0, -1.0)
