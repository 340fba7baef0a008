import math

import pytest

from millstream.streams.groups import priority_of, statistics_of


@pytest.mark.parametrize("rewards", [[1.0] * 4, [0.0] * 4, [0.1] * 3, [1 / 3] * 7])
def test_equal_rewards_have_no_advantage(rewards):
    """R01: rewards that are all equal give exactly 0, however their mean would round."""
    statistics = statistics_of(rewards)
    assert statistics.std == 0.0
    assert [statistics.advantage(r) for r in rewards] == [0.0] * len(rewards)


def test_one_reward_has_no_advantage():
    """R03: a single usable reward has advantage 0 and no NaN."""
    assert statistics_of([0.7]).advantage(0.7) == 0.0
    assert statistics_of([]).std == 0.0


def test_advantages_by_hand():
    """Rewards 1, 0, 1: mean 2/3, population variance 2/9."""
    statistics = statistics_of([1.0, 0.0, 1.0])
    assert statistics.mean == pytest.approx(2 / 3)
    assert statistics.std == pytest.approx(math.sqrt(2) / 3)
    assert statistics.advantage(1.0) == pytest.approx((1 / 3) / (math.sqrt(2) / 3), rel=1e-3)


def test_a_tiny_spread_is_floored():
    """Rewards that differ by 1e-12 do not become advantages of ±1."""
    assert abs(statistics_of([0.5, 0.5 + 1e-12]).advantage(0.5)) < 1e-6


def test_priority_decays_like_exponential_age():
    """An advantage e times as large weighs as much as τ of age."""
    older = priority_of(1.0, 0, tau_s=10.0)
    assert priority_of(1.0, 10_000, tau_s=10.0) - older == pytest.approx(1.0)
    assert priority_of(0.0, 0, tau_s=10.0) < older
