"""Advantages and returns, by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.trainer.advantages import discounted_returns, group_advantages


@pytest.mark.parametrize("reward", [0.0, 1.0, 0.1])
@pytest.mark.parametrize("size", [1, 3, 4, 7])
def test_equal_rewards_have_no_advantage(reward: float, size: int) -> None:
    """Exactly 0, not nearly: 0.1 three times does not sum to 0.3 (R01)."""
    assert group_advantages([reward] * size) == [0.0] * size


def test_one_usable_reward_has_no_advantage() -> None:
    """[.7, None, None, None] and a group of one: 0, and no NaN (R03)."""
    assert group_advantages([0.7, None, None, None]) == [0.0, None, None, None]
    assert group_advantages([0.7]) == [0.0]
    assert group_advantages([None, None]) == [None, None]


def test_a_missing_reward_is_masked_and_counts_for_nothing() -> None:
    """[1, NaN, 0, 1]: mean 2/3 and std √2/3 over three, so 1/√2, masked, −√2, 1/√2 (R04)."""
    found = group_advantages([1.0, math.nan, 0.0, 1.0])
    assert found[1] is None
    assert [x for x in found if x is not None] == pytest.approx([1 / math.sqrt(2), -math.sqrt(2), 1 / math.sqrt(2)])


def test_the_floor_of_the_std() -> None:
    """[.50, .52]: std .01 is under the floor .05, so ±.01/.05 = ±.2."""
    assert group_advantages([0.50, 0.52], std_floor=0.05) == pytest.approx([-0.2, 0.2])


@given(st.lists(st.floats(-10, 10) | st.none() | st.just(math.nan) | st.just(math.inf), max_size=8))
def test_advantages_are_finite_and_sum_to_nothing(rewards: list[float | None]) -> None:
    """Whatever the group, what is not masked is finite and centred."""
    found = group_advantages(rewards)
    usable = [advantage for advantage in found if advantage is not None]
    assert [a is None for a in found] == [r is None or not math.isfinite(r) for r in rewards]
    assert all(map(math.isfinite, usable))
    assert math.fsum(usable) == pytest.approx(0, abs=1e-6)


def test_a_return_goes_through_observations() -> None:
    """[act, obs, obs, act], reward 2, γ .9: 1.8 at the first action, 2 at the last, 0 between (R16)."""
    assert discounted_returns([True, False, False, True], 2.0, 0.9) == [1.8, 0.0, 0.0, 2.0]
