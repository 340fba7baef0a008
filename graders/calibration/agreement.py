"""Agreement of a judge with gold labels: observed, beyond chance (κ), and class by class.

Agreement alone misleads where one class is rare: at a prevalence of 95 % a judge that always says yes agrees in
95 % and knows nothing (κ = 0).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from msgspec import Struct

from millstream.intervals import normal_quantile, wilson

Pairs = Sequence[tuple[str, str]]
"""(gold label, judge's label), one a run."""


class ClassFigures(Struct, frozen=True, kw_only=True):
    """One class: how much of it the judge finds (recall), and how often it is right when it says it
    (precision), each with its 95 % interval and its denominator. None where nothing is to be divided by.
    """

    label: str
    gold: int
    given: int
    recall: float | None
    recall_range: tuple[float, float]
    precision: float | None
    precision_range: tuple[float, float]


class Agreement(Struct, frozen=True, kw_only=True):
    """The whole comparison of ``n`` runs. ``kappa`` is None where only one label occurs on both sides: there is
    nothing beyond chance to agree on. ``confusion``: gold label → judge's label → runs.
    """

    n: int
    agreement: float
    agreement_range: tuple[float, float]
    kappa: float | None
    kappa_range: tuple[float, float] | None
    confusion: dict[str, dict[str, int]]
    classes: tuple[ClassFigures, ...]


def agreement(pairs: Pairs) -> Agreement:
    """Compare. Raises `ValueError` without a pair."""
    if not pairs:
        raise ValueError("nothing to compare: no run has both a judge's label and a gold label")
    labels = sorted({label for pair in pairs for label in pair})
    counts = Counter(pairs)
    n, same = len(pairs), sum(gold == given for gold, given in pairs)
    kappa, error = cohen_kappa(pairs)
    z = normal_quantile(0.975)
    return Agreement(
        n=n,
        agreement=same / n,
        agreement_range=wilson(same, n),
        kappa=kappa,
        kappa_range=None if kappa is None else (max(-1.0, kappa - z * error), min(1.0, kappa + z * error)),
        confusion={gold: {given: counts[gold, given] for given in labels} for gold in labels},
        classes=tuple(_class(label, pairs) for label in labels),
    )


def cohen_kappa(pairs: Pairs) -> tuple[float | None, float]:
    """Cohen's κ and its large-sample standard error (Fleiss, Cohen & Everitt 1969, formula 13):
    κ = (p_o − p_e)/(1 − p_e); se² = (A + B − C) / (n (1 − p_e)²) with
    A = Σ_i p_ii (1 − (p_i· + p_·i)(1 − κ))², B = (1 − κ)² Σ_{i≠j} p_ij (p_·i + p_j·)²,
    C = (κ − p_e (1 − κ))². None where p_e = 1.
    """
    n = len(pairs)
    share = {pair: count / n for pair, count in Counter(pairs).items()}
    rows, columns = Counter[str](), Counter[str]()
    for (gold, given), p in share.items():
        rows[gold] += p  # type: ignore[assignment]
        columns[given] += p  # type: ignore[assignment]
    observed = sum(p for (gold, given), p in share.items() if gold == given)
    expected = sum(rows[label] * columns[label] for label in rows)
    if expected >= 1 - 1e-12:
        return None, math.nan
    kappa = (observed - expected) / (1 - expected)
    a = b = 0.0
    for (gold, given), p in share.items():
        if gold == given:
            a += p * (1 - (rows[gold] + columns[gold]) * (1 - kappa)) ** 2
        else:
            b += p * (columns[gold] + rows[given]) ** 2
    c = (kappa - expected * (1 - kappa)) ** 2
    variance = max(0.0, a + (1 - kappa) ** 2 * b - c) / (n * (1 - expected) ** 2)
    return kappa, math.sqrt(variance)


def _class(label: str, pairs: Pairs) -> ClassFigures:
    gold = sum(one == label for one, _ in pairs)
    given = sum(other == label for _, other in pairs)
    both = sum(one == other == label for one, other in pairs)
    return ClassFigures(
        label=label,
        gold=gold,
        given=given,
        recall=both / gold if gold else None,
        recall_range=wilson(both, gold),
        precision=both / given if given else None,
        precision_range=wilson(both, given),
    )
