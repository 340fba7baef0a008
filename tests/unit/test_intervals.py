"""Intervals against hand-worked figures, published tables and their own coverage."""

import math
from random import Random

import pytest

from millstream.intervals import (
    bootstrap_clusters,
    clustered_mean,
    clustered_rate,
    clustered_ratio,
    normal_quantile,
    quantile,
    student_cdf,
    student_quantile,
    wilson,
)


@pytest.mark.parametrize(
    ("p", "df", "expected"),
    [(0.95, 1, 6.313752), (0.975, 2, 4.302653), (0.975, 29, 2.045230), (0.99, 29, 2.462021), (0.95, 1000, 1.646379)],
)
def test_student_quantiles_are_those_of_the_tables(p: float, df: int, expected: float) -> None:
    """Student's t as printed in every table, and its mirror image below one half."""
    assert student_quantile(p, df) == pytest.approx(expected, abs=2e-6)
    assert student_quantile(1 - p, df) == pytest.approx(-expected, abs=2e-6)


def test_student_distribution_is_cauchy_at_one_degree() -> None:
    """With one degree of freedom F(t) = 1/2 + atan(t)/π."""
    for t in (-3.0, -0.5, 0.0, 0.7, 12.0):
        assert student_cdf(t, 1) == pytest.approx(0.5 + math.atan(t) / math.pi, abs=1e-12)


def test_normal_quantile() -> None:
    """Φ⁻¹(.975) = 1.959964."""
    assert normal_quantile(0.975) == pytest.approx(1.959964, abs=1e-6)


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"), [(8, 10, 0.490162, 0.943318), (0, 10, 0.0, 0.277533), (10, 10, 0.722467, 1.0)]
)
def test_wilson_interval(successes: int, n: int, low: float, high: float) -> None:
    """8 of 10 is [.490, .943]; none and all of ten keep a width."""
    assert wilson(successes, n) == pytest.approx((low, high), abs=1e-5)


def test_nothing_seen_is_the_whole_range() -> None:
    """A rate of no trials may be anything."""
    assert wilson(0, 0) == (0.0, 1.0)
    assert math.isnan(clustered_rate([], []).estimate)


def test_clustered_mean_by_hand() -> None:
    """Values 1, 3 | 5, 7: mean 4, sums of residuals −4 and 4, se² = 2·(16+16)/16 = 4, t(.975; 1) = 12.7062."""
    found = clustered_mean([1, 3, 5, 7], ["a", "a", "b", "b"])
    assert (found.estimate, found.n, found.clusters) == (4, 4, 2)
    assert found.high - 4 == pytest.approx(2 * 12.706205, abs=1e-4)
    assert 4 - found.low == pytest.approx(2 * 12.706205, abs=1e-4)


def test_one_world_tells_nothing_of_the_spread() -> None:
    """With a single cluster the interval is the whole line: neither above nor below zero."""
    found = clustered_mean([1.0, 1.0, 1.0], ["only"] * 3)
    assert (found.low, found.high) == (-math.inf, math.inf)
    assert not found.above_zero
    assert not found.below_zero


def test_non_finite_values_are_refused() -> None:
    """A NaN is no value of a mean."""
    with pytest.raises(ValueError, match="finite"):
        clustered_mean([0.5, math.nan], ["a", "b"])
    with pytest.raises(ValueError, match="cluster names"):
        clustered_mean([0.5], [])


def test_a_rate_of_one_keeps_a_width() -> None:
    """30 of 30 successes is not certainty: about the rule of three below 1."""
    found = clustered_rate([1.0] * 30, [str(i % 10) for i in range(30)])
    assert found.high == 1.0
    assert 0.8 < found.low < 0.9


def test_worlds_that_move_together_widen_the_interval() -> None:
    """Ten worlds that are all right or all wrong are worth ten tasks, not a hundred."""
    values = [float(i < 50) for i in range(100)]
    together = clustered_rate(values, [str(i // 10) for i in range(100)])
    apart = clustered_rate(values, [str(i % 50) for i in range(100)])
    assert together.high - together.low > 2.5 * (apart.high - apart.low)


def test_the_clustered_interval_covers_and_the_simple_one_does_not() -> None:
    """1,000 studies of 30 worlds × 10 tasks whose true rates differ by world (sd .3 about .5): the
    clustered 95 % interval covers .5 in 92.5–97.5 %, the one that takes tasks as independent far less.
    """
    random, clustered, simple = Random(1), 0, 0
    worlds = [str(i // 10) for i in range(300)]
    for _ in range(1000):
        rates = [min(1.0, max(0.0, random.gauss(0.5, 0.3))) for _ in range(30)]
        values = [float(random.random() < rates[i // 10]) for i in range(300)]
        found = clustered_rate(values, worlds)
        clustered += found.low <= 0.5 <= found.high
        low, high = wilson(sum(values), 300)
        simple += low <= 0.5 <= high
    assert 925 <= clustered <= 975
    assert simple < 800


def test_bootstrap_is_seeded_and_sorted() -> None:
    """The same seed gives the same values; the middle one is near the statistic of the whole."""
    sums = [(float(i), 10.0) for i in range(10)]
    first = bootstrap_clusters(sums, lambda s: s[0] / s[1], seed=3, draws=500)
    assert first == bootstrap_clusters(sums, lambda s: s[0] / s[1], seed=3, draws=500)
    assert first == sorted(first)
    assert quantile(first, 0.5) == pytest.approx(0.45, abs=0.03)


def test_quantile_is_the_outer_neighbour() -> None:
    """Of 0..10 the .05 quantile is 0 and the .95 quantile 10: never narrower than asked."""
    values = [float(i) for i in range(11)]
    assert (quantile(values, 0.05), quantile(values, 0.95)) == (0.0, 10.0)


def test_a_ratio_of_sums_is_that_of_the_mean_where_all_weigh_the_same() -> None:
    """With denominators of 1 the ratio is the mean, and so is its interval."""
    values, worlds = [1.0, 3.0, 5.0, 7.0], ["a", "a", "b", "b"]
    found, mean = clustered_ratio(values, [1.0] * 4, worlds), clustered_mean(values, worlds)
    assert (found.estimate, found.low, found.high) == pytest.approx((mean.estimate, mean.low, mean.high))


def test_a_ratio_by_hand() -> None:
    """y 2, 4 and x 1, 3 in two worlds: R 1.5, residuals .5 and −.5, se² = 2·(.25 + .25)/16, t(.975; 1) 12.7062."""
    found = clustered_ratio([2.0, 4.0], [1.0, 3.0], ["a", "b"])
    assert (found.estimate, found.high) == pytest.approx((1.5, 1.5 + 12.706205 * 0.25), abs=1e-4)


def test_a_ratio_over_nothing_is_no_number() -> None:
    """Cost over no success is infinite, nothing over nothing is NaN."""
    assert clustered_ratio([3.0], [0.0], ["a"]).estimate == math.inf
    assert math.isnan(clustered_ratio([], [], []).estimate)


def test_the_ratios_interval_covers() -> None:
    """1,000 studies of 40 worlds with 1 to 9 calls each, of which a world's own share is useful: the interval
    covers the true ratio of sums in 92.5–97.5 %.
    """
    random, covered = Random(7), 0
    for _ in range(1000):
        calls = [random.randint(1, 9) for _ in range(40)]
        useful = [sum(random.random() < rate for _ in range(n)) for n in calls for rate in [random.uniform(0.3, 0.9)]]
        found = clustered_ratio([float(u) for u in useful], [float(n) for n in calls], list(range(40)))
        covered += found.low <= 0.6 <= found.high
    assert 925 <= covered <= 975
