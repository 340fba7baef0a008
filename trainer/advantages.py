"""Advantages within a group of rollouts of one task and policy version, and returns within one rollout."""

from __future__ import annotations

import math
from collections.abc import Sequence


def group_advantages(rewards: Sequence[float | None], std_floor: float = 0.05) -> list[float | None]:
    """(r − mean) / max(std, floor) over the usable rewards, population std; None where a reward is not a finite number.

    Exactly 0 for all when the usable rewards are equal, or when there is only one (GRPO: Shao et al., 2024).
    """
    usable = [reward for reward in rewards if reward is not None and math.isfinite(reward)]
    if not usable:
        return [None] * len(rewards)
    if all(reward == usable[0] for reward in usable):
        return [0.0 if _usable(reward) else None for reward in rewards]
    mean = math.fsum(usable) / len(usable)
    std = math.sqrt(math.fsum((reward - mean) ** 2 for reward in usable) / len(usable))
    scale = max(std, std_floor)
    return [(reward - mean) / scale if reward is not None and _usable(reward) else None for reward in rewards]


def _usable(reward: float | None) -> bool:
    return reward is not None and math.isfinite(reward)


def discounted_returns(mask: Sequence[bool], reward: float, gamma: float) -> list[float]:
    """The return of each sampled token for a reward at the end; 0 at tokens that the policy did not sample.

    Time counts sampled tokens only: an observation neither discounts nor cuts the return of the action before it.
    """
    returns, discounted = [0.0] * len(mask), reward
    for place in range(len(mask) - 1, -1, -1):
        if mask[place]:
            returns[place] = discounted
            discounted *= gamma
    return returns
