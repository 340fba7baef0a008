"""Agreement and kappa, by hand and against the literature."""

from __future__ import annotations

import random

import pytest

from millstream.graders.calibration.agreement import agreement, cohen_kappa


def pairs(a, b, c, d):
    """yes/yes, yes/no, no/yes, no/no."""
    return [("y", "y")] * a + [("y", "n")] * b + [("n", "y")] * c + [("n", "n")] * d


def test_kappa_by_hand():
    """p_o = .7, p_e = .5·.6 + .5·.4 = .5, κ = .2/.5 = .4."""
    found = agreement(pairs(20, 5, 10, 15))
    assert (found.n, found.agreement) == (50, 0.7)
    assert found.kappa == pytest.approx(0.4)
    assert found.confusion == {"n": {"n": 15, "y": 10}, "y": {"n": 5, "y": 20}}


def test_the_standard_error_is_that_of_fleiss_cohen_and_everitt():
    """Their example of 1969: 200 cases in three classes, κ = .429 and se = .054."""
    table = {
        (1, 1): 0.53, (1, 2): 0.05, (1, 3): 0.02, (2, 1): 0.11, (2, 2): 0.14, (2, 3): 0.05,
        (3, 1): 0.01, (3, 2): 0.06, (3, 3): 0.03,
    }  # fmt: skip
    cases = [(str(i), str(j)) for (i, j), share in table.items() for _ in range(round(share * 200))]
    kappa, error = cohen_kappa(cases)
    assert kappa == pytest.approx(0.429, abs=0.001)
    assert error == pytest.approx(0.054, abs=0.001)


def test_agreement_can_hide_that_nothing_is_known():
    """At a prevalence of 95 %: agreement .943, κ .08, and its interval holds 0."""
    found = agreement(pairs(940, 10, 47, 3))
    assert found.agreement == 0.943
    assert found.kappa == pytest.approx(0.076, abs=0.001)
    low, high = found.kappa_range
    assert low < 0 < high
    (no,) = [c for c in found.classes if c.label == "n"]
    assert (no.gold, no.recall) == (50, 0.06)


def test_the_interval_of_kappa_holds_the_truth():
    """A judge with κ = .7 on 100 labels: the 95 % interval holds it in 90 to 99 of 100 draws, ±.14 wide."""
    held, widths = 0, []
    for seed in range(200):
        draw = random.Random(seed)
        gold = ["y" if draw.random() < 0.5 else "n" for _ in range(100)]
        low, high = agreement([(g, g if draw.random() < 0.85 else "yn"[g == "y"]) for g in gold]).kappa_range
        held += low <= 0.7 <= high
        widths.append((high - low) / 2)
    assert 180 <= held <= 198
    assert sum(widths) / 200 == pytest.approx(0.14, abs=0.01)


def test_one_label_everywhere_has_no_kappa():
    """There is nothing beyond chance to agree on: told as such, not as 0 or 1."""
    found = agreement(pairs(10, 0, 0, 0))
    assert (found.agreement, found.kappa, found.kappa_range) == (1.0, None, None)
    with pytest.raises(ValueError, match="nothing to compare"):
        agreement([])
