"""The tests the gate decides by: pure, seeded, each with its source.

Rates and means with their intervals are in `millstream.intervals`; here is what compares two policies
on the same tasks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random

from millstream.intervals import Cluster, Interval, clustered_mean


def mcnemar_mid_p(wins: int, losses: int) -> float:
    """One-sided mid-p of McNemar's test that the candidate wins more pairs than it loses.

    P(X > wins) + P(X = wins)/2 for X ~ Binomial(wins + losses, 1/2); 1 without a discordant pair.
    Exact in integers. (McNemar 1947; mid-p: Fagerland, Lydersen & Laake 2013.)
    """
    n = wins + losses
    if n == 0:
        return 1.0
    upper, term = 0, 1
    for k in range(n, wins, -1):
        upper += term
        term = term * k // (n - k + 1)
    return (2 * upper + term) / (1 << (n + 1))


def paired_bootstrap(differences: Sequence[float], seed: int, draws: int = 4999) -> tuple[float, float]:
    """One-sided p that the mean of paired differences is above 0, and that it is below, for graded
    rewards.

    The studentised bootstrap under the null: resamples are centred at the observed mean and
    p = (1 + #{t* ≥ t}) / (draws + 1) (Efron & Tibshirani 1993, 16.4; Davison & Hinkley 1997, 4.4).
    (1, 1) when nothing differs; never below 1/(draws + 1). Raises `ValueError` on a non-finite value.
    """
    if not all(map(math.isfinite, differences)):
        raise ValueError("the paired bootstrap needs finite differences: bound what is not scored first")
    if not any(differences):
        return 1.0, 1.0
    observed, random, n = _studentised(differences, 0.0), Random(seed), len(differences)
    mean = math.fsum(differences) / n
    above = below = 1
    for _ in range(draws):
        drawn = _studentised(random.choices(differences, k=n), mean)
        above += drawn >= observed
        below += drawn <= observed
    return above / (draws + 1), below / (draws + 1)


def _studentised(values: Sequence[float], centre: float) -> float:
    n = len(values)
    mean = sum(values) / n
    variance = sum(v * v for v in values) / n - mean * mean
    shift = mean - centre
    if variance <= 1e-18:
        return math.copysign(math.inf, shift) if abs(shift) > 1e-12 else 0.0
    return shift / math.sqrt(variance / n)


def non_inferiority_bound(differences: Sequence[float], clusters: Sequence[Cluster]) -> Interval:
    """The interval whose low end (harm is a fall) or high end (harm is a rise) is a one-sided 95 %
    bound: two-sided 90 %, clustered. Non-inferior when that end is inside the margin (ICH E9, 3.3.2).
    """
    return clustered_mean(differences, clusters, level=0.90)


def bounded_against_candidate(
    champion: float | None, candidate: float | None, low: float, high: float
) -> tuple[float, float]:
    """A pair of scores with what is not scored put where it hurts the candidate most: its own at
    ``low``, the champion's at ``high`` (worst-case bounds: Manski 1990).
    """
    return high if champion is None else champion, low if candidate is None else candidate
