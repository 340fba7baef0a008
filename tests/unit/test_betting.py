"""The e-process: false alarms stay below the bound, however often one looks, and true ones come soon."""

from __future__ import annotations

from random import Random

import pytest

from millstream.betting import Bet


def alarm(seed, rate, expected=0.05, runs=1000, threshold=100.0, *, restarts=False):
    """At which run the evidence reaches the threshold, or None."""
    random, bet = Random(seed), Bet(expected=expected, restarts=restarts)
    return next((n for n in range(1, runs + 1) if bet.take(random.random() < rate) >= threshold), None)


def test_one_step_by_hand():
    """A hit at p₀ = 1/2 multiplies the bet on q = 1/2 + f/2 by 1 + f, a miss by 1 − f: mean 1 under H₀."""
    hit, miss = Bet(expected=0.5), Bet(expected=0.5)
    up, down = hit.take(1.0), miss.take(0.0)
    mean = (0.03 + 0.06 + 0.1 + 0.2 + 0.4 + 0.7) / 6
    assert up == pytest.approx(1 + mean)
    assert down == pytest.approx(1 - mean)
    assert (up + down) / 2 == pytest.approx(1.0)


def test_false_alarms_stay_below_the_bound():
    """At the null's edge at most 1 in 100 looks ever reaches 100 (400 histories of 500, looked at after each)."""
    assert sum(alarm(seed, 0.05, runs=500) is not None for seed in range(400)) <= 9


def test_true_ones_come_soon():
    """Three in ten against one in twenty: a median of less than 30 observations (NUMBERS: 29)."""
    found = sorted(alarm(seed, 0.30) for seed in range(101))
    assert found[50] < 30


def test_a_change_after_a_good_time_is_found_when_the_bets_restart():
    """Without restarts a long good time is a debt that the evidence has to pay off first."""

    def after_good(restarts):
        random, bet = Random(1), Bet(expected=0.1, restarts=restarts)
        for _ in range(2000):
            bet.take(random.random() < 0.05)
        return next((n for n in range(3000) if bet.take(random.random() < 0.3) >= 100), 3000)

    assert after_good(restarts=True) < 100 < after_good(restarts=False)


@pytest.mark.parametrize("expected", [0.0, 1.0, -1.0, float("nan")])
def test_a_share_that_cannot_be_bet_against_is_refused(expected):
    """Betting against 0 or 1 would win or lose everything at once."""
    with pytest.raises(ValueError, match="expected"):
        Bet(expected=expected)


def test_overwhelming_evidence_is_finite():
    """Ten thousand hits in a row are told as a number."""
    bet = Bet(expected=0.001)
    for _ in range(10_000):
        bet.take(1.0)
    assert 1e200 < bet.evidence < float("inf")
