"""Intervals for rates and means, honest about tasks that come from the same world.

Tasks of one world (a document, a company, a repository) succeed and fail together, so an interval that
counts tasks as independent is too narrow. Everything here is pure, deterministic and needs only the
standard library. Every interval carries its denominators.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from random import Random
from statistics import NormalDist

from msgspec import Struct

Cluster = Hashable
"""What tasks are grouped by: the world's name."""


class Interval(Struct, frozen=True):
    """An estimate with a two-sided interval; ``n`` values in ``clusters`` worlds."""

    estimate: float
    low: float
    high: float
    n: int
    clusters: int = 0

    @property
    def above_zero(self) -> bool:
        """Whether the whole interval lies above zero (False when anything is NaN)."""
        return self.low > 0

    @property
    def below_zero(self) -> bool:
        """Whether the whole interval lies below zero (False when anything is NaN)."""
        return self.high < 0


def normal_quantile(p: float) -> float:
    """The z with Φ(z) = p."""
    return NormalDist().inv_cdf(p)


@lru_cache(maxsize=1024)
def student_quantile(p: float, df: int) -> float:
    """The t with F(t; df) = p, by bisection on the distribution function; ``df`` ≥ 1, 0 < p < 1."""
    if p < 0.5:
        return -student_quantile(1 - p, df)
    low, high = 0.0, 1.0
    while student_cdf(high, df) < p:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if student_cdf(middle, df) < p else (low, middle)
    return (low + high) / 2


def student_cdf(t: float, df: int) -> float:
    """P(T ≤ t) for Student's t: 1 − I_x(df/2, 1/2)/2 with x = df/(df + t²), for t ≥ 0 (DLMF 8.17)."""
    tail = _incomplete_beta(df / 2, 0.5, df / (df + t * t)) / 2
    return 1 - tail if t >= 0 else tail


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function I_x(a, b), by its continued fraction (DLMF 8.17.22)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x),
    )
    if x < (a + 1) / (a + b + 2):
        return front * _beta_fraction(a, b, x) / a
    return 1 - front * _beta_fraction(b, a, 1 - x) / b


def _beta_fraction(a: float, b: float, x: float) -> float:
    """Lentz's evaluation of the continued fraction of the incomplete beta function."""
    tiny = 1e-300
    c, d = 1.0, 1 / max(1 - (a + b) * x / (a + 1), tiny)
    fraction = d
    for m in range(1, 300):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / ((1 + term * d) or tiny)
            c = (1 + term / c) or tiny
            fraction *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return fraction


def wilson(successes: float, n: float, z: float | None = None, level: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval of a rate (Wilson 1927); (0, 1) when ``n`` is 0. ``n`` may be an
    effective sample size; ``z`` replaces the normal quantile of ``level``.
    """
    if n <= 0:
        return 0.0, 1.0
    z = normal_quantile((1 + level) / 2) if z is None else z
    p = successes / n
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(max(p * (1 - p), 0) / n + z * z / (4 * n * n))
    return max(0.0, min(p, centre - half)), min(1.0, max(p, centre + half))


def clustered_mean(values: Sequence[float], clusters: Sequence[Cluster], level: float = 0.95) -> Interval:
    """A mean with the cluster-robust (sandwich) standard error and Student's t on G − 1 degrees:
    se² = G/(G−1) · Σ_g (Σ_{i∈g} (x_i − x̄))² / n² (Liang & Zeger 1986; Cameron & Miller 2015).

    Of paired differences it is the interval of the paired difference. With fewer than two clusters
    nothing is known of the spread: (−inf, inf). Raises `ValueError` on a value that is not finite.
    """
    n, sums = len(values), _residuals(values, clusters)
    if n == 0:
        return Interval(math.nan, -math.inf, math.inf, 0, 0)
    mean = math.fsum(values) / n
    if len(sums) < 2:
        return Interval(mean, -math.inf, math.inf, n, len(sums))
    half = student_quantile((1 + level) / 2, len(sums) - 1) * _clustered_error(sums, n)
    return Interval(mean, mean - half, mean + half, n, len(sums))


def clustered_rate(values: Sequence[float], clusters: Sequence[Cluster], level: float = 0.95) -> Interval:
    """A rate of 0/1 values: Wilson's interval at the effective sample size n / deff, deff the ratio
    of the clustered to the simple variance, at least 1, with Student's t on G − 1 degrees (Korn &
    Graubard 1998; Franco et al. 2019). It stays inside [0, 1] and has a width at 0 and at 1.
    """
    n, sums = len(values), _residuals(values, clusters)
    if n == 0 or len(sums) < 2:
        return Interval(math.fsum(values) / n if n else math.nan, 0.0, 1.0, n, len(sums))
    rate = math.fsum(values) / n
    simple = rate * (1 - rate) / n
    effect = max(1.0, _clustered_error(sums, n) ** 2 / simple) if simple > 0 else 1.0
    z = student_quantile((1 + level) / 2, len(sums) - 1)
    low, high = wilson(rate * n / effect, n / effect, z)
    return Interval(rate, low, high, n, len(sums))


def clustered_ratio(
    numerators: Sequence[float], denominators: Sequence[float], clusters: Sequence[Cluster], level: float = 0.95
) -> Interval:
    """A ratio of sums R = Σy/Σx (cost per success, useful calls per call) with the linearised, clustered
    standard error: se² = G/(G−1) · Σ_g (Σ_{i∈g} (y_i − R·x_i))² / (Σx)² and Student's t on G − 1 degrees
    (Cochran 1977, 6.8; Woodruff 1971). NaN without anything, infinite over nothing.
    """
    n, total = len(numerators), math.fsum(denominators)
    if not total:
        return Interval(math.inf if math.fsum(numerators) else math.nan, -math.inf, math.inf, n, len(set(clusters)))
    ratio = math.fsum(numerators) / total
    parts = [y - ratio * x for y, x in zip(numerators, denominators, strict=True)]
    sums = _residuals(parts, clusters)
    if len(sums) < 2:
        return Interval(ratio, -math.inf, math.inf, n, len(sums))
    half = student_quantile((1 + level) / 2, len(sums) - 1) * _clustered_error(sums, n) * n / total
    return Interval(ratio, ratio - half, ratio + half, n, len(sums))


def _residuals(values: Sequence[float], clusters: Sequence[Cluster]) -> list[float]:
    """Per cluster the sum of deviations from the overall mean."""
    if len(values) != len(clusters):
        raise ValueError(f"{len(values)} values but {len(clusters)} cluster names: give one for each value")
    if not all(map(math.isfinite, values)):
        raise ValueError("an interval needs finite values: count what is not scored apart")
    mean = math.fsum(values) / len(values) if values else 0.0
    sums: dict[Cluster, float] = {}
    for value, cluster in zip(values, clusters, strict=True):
        sums[cluster] = sums.get(cluster, 0.0) + value - mean
    return list(sums.values())


def _clustered_error(sums: Sequence[float], n: int) -> float:
    return math.sqrt(len(sums) / (len(sums) - 1) * math.fsum(s * s for s in sums)) / n


def bootstrap_clusters(
    sums: Sequence[tuple[float, ...]],
    statistic: Callable[[tuple[float, ...]], float],
    seed: int,
    draws: int = 2000,
) -> list[float]:
    """Sorted bootstrap values of a statistic of column sums, resampling whole clusters (Efron 1979).

    ``sums``: one tuple of column sums a cluster; ``statistic`` sees the sums of a resample and may
    return inf (a ratio over zero), never NaN. Deterministic for a seed.
    """
    random, found = Random(seed), []
    for _ in range(draws):
        sample = random.choices(sums, k=len(sums))
        found.append(statistic(tuple(map(sum, zip(*sample, strict=True)))))
    return sorted(found)


def quantile(ordered: Sequence[float], p: float) -> float:
    """The p-quantile of sorted values, the nearest one outwards from the middle (conservative)."""
    position = p * (len(ordered) - 1)
    return ordered[math.floor(position) if p < 0.5 else math.ceil(position)]
