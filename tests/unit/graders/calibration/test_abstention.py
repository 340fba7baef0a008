"""The threshold of fixed-sequence testing keeps its promise where picking the best one does not."""

from __future__ import annotations

import random

import pytest

from millstream.graders.calibration.abstention import binomial_tail, least_labels, threshold

RISK = 0.10


def error_at(confidence):
    """A judge's chance of error, falling with its confidence: 30 % at 0, none at 1."""
    return 0.3 * (1 - confidence)


def true_risk(limit):
    """Its error among confidences (uniform in [0, 1]) of at least ``limit``, exactly."""
    return error_at((limit + 1) / 2)


def labels(seed, n):
    draw = random.Random(seed)
    confidences = [draw.random() for _ in range(n)]
    return [(c, draw.random() >= error_at(c)) for c in confidences]


def naive(judged):
    """The loosest threshold whose error on the labels themselves is within the risk."""
    for limit in sorted({c for c, _ in judged}):
        kept = [right for c, right in judged if c >= limit]
        if 1 - sum(kept) / len(kept) <= RISK:
            return limit
    return None


def test_the_risk_holds_as_often_as_was_promised():
    """200 draws of 500 labels, δ = 5 %: the chosen threshold breaks the risk in at most 5 % (and chance), and
    is found in most; picking by the labels breaks it in more than 30 %.
    """
    broken = found = by_eye = 0
    for seed in range(200):
        judged = labels(seed, 500)
        safe = threshold(judged, RISK)
        found += safe is not None
        broken += safe is not None and true_risk(safe.confidence) > RISK
        by_eye += true_risk(naive(judged)) > RISK
    assert broken <= 16  # Binomial(200, .05): 17 or more in 2 % of the times
    assert found > 140
    assert by_eye > 60


def test_more_labels_keep_more():
    """The price of being sure falls with the labels; the threshold never judges what it must not."""
    few, many = threshold(labels(1, 200), RISK), threshold(labels(1, 5000), RISK)
    assert few is None or few.coverage < many.coverage
    assert many.coverage == pytest.approx(0.63, abs=0.08)  # the error is 10 % from confidence 1/3 on
    assert many.kept == round(many.coverage * many.n)


@pytest.mark.parametrize(
    ("errors", "n", "tail"), [(0, 1, 0.9), (0, 29, 0.9**29), (1, 2, 0.99), (2, 2, 1.0), (0, 0, 1.0)]
)
def test_the_binomial_tail_by_hand(errors, n, tail):
    """P(X ≤ errors) at a risk of one in ten."""
    assert binomial_tail(errors, n, 0.1) == pytest.approx(tail)


def test_too_few_labels_show_nothing():
    """0.9^28 = 5.2 %, 0.9^29 = 4.7 %: with 28 labels nothing can be shown, with 29 right ones it can."""
    assert least_labels(0.1, 0.05) == 29
    assert threshold([(1.0, True)] * 28, 0.1) is None
    assert threshold([(1.0, True)] * 29, 0.1).kept == 29
    assert threshold([(1.0, False)] * 500, 0.1) is None
    with pytest.raises(ValueError, match="between 0 and 1"):
        threshold([], 0.0)
