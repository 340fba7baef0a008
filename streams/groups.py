"""Groups of rollouts of one task and policy version, and what their rewards say.

A group is one task (or the caller's group), policy version, lineage and set of grader epochs. It closes
when all its members are there and none waits for feedback, or by its timer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct, field

from millstream.codec import digest
from millstream.rollout import RolloutFacts, RolloutId

STD_FLOOR = 1e-4
"""Added to the standard deviation, so that almost equal rewards do not blow up."""
EPSILON = 1e-3
"""Added to |advantage| before the logarithm, so that a rollout that teaches nothing still has a priority."""


class GroupStatistics(Struct, frozen=True):
    """Mean and population standard deviation of the known rewards; 0 and 0 without any."""

    mean: float
    std: float

    def advantage(self, reward: float) -> float:
        """(r − mean) / (std + floor), exactly 0 when all rewards are equal (GRPO: Shao et al., 2024)."""
        return (reward - self.mean) / (self.std + STD_FLOOR) if self.std else 0.0


def statistics_of(rewards: Sequence[float]) -> GroupStatistics:
    """Statistics within one group. ``std`` is exactly 0 for equal rewards, however they round."""
    if not rewards:
        return GroupStatistics(0.0, 0.0)
    first = rewards[0]
    if all(reward == first for reward in rewards):
        return GroupStatistics(first, 0.0)
    mean = math.fsum(rewards) / len(rewards)
    variance = math.fsum((reward - mean) ** 2 for reward in rewards) / len(rewards)
    return GroupStatistics(mean, math.sqrt(variance))


def priority_of(advantage: float, admitted_ms: int, tau_s: float) -> float:
    """log(|advantage| + ε) + t/τ: a constant whose order is that of exponential decay with time τ."""
    return math.log(abs(advantage) + EPSILON) + admitted_ms / 1000 / tau_s


class Group(Struct, kw_only=True, array_like=True):
    """A group as the stage holds it. ``turn`` counts its decisions, ``decision`` is the id of the last, from
    which the ids of all that follows from it are made; ``stale`` marks one to be decided
    again when nothing holds its rollouts any more.
    """

    id: str
    key: str
    size: int
    opened_ms: int
    deadline_ms: int
    members: dict[str, None] = field(default_factory=dict)
    waiting: int = 0
    turn: int = 0
    decision: str = ""
    closed: bool = False
    by_timer: bool = False
    evicted: bool = False
    stale: bool = False
    admitted: tuple[RolloutId, ...] = ()

    @property
    def full(self) -> bool:
        """Whether it can be decided before its timer."""
        return len(self.members) >= self.size and not self.waiting


def group_key(namespace: str, trajectory_id: str, facts: RolloutFacts, epochs: Sequence[str]) -> str:
    """What members of a group have in common. A rollout on its own (size 1) is its own group."""
    task = facts.group or facts.task_id
    alone = trajectory_id if facts.group_size <= 1 or not task else ""
    version = "" if facts.policy_version is None else str(facts.policy_version)
    return "\x1f".join((namespace, facts.lineage, task, version, alone, *epochs))


def group_id(key: str, generation: int, alone: Sequence[str | int] = ()) -> str:
    """The id of the n-th group of a key (a full group takes no more members). ``alone``: what tells a rollout on its
    own from its former self; the numbers of its groups are not kept.
    """
    return digest("group", key, generation, *alone)
