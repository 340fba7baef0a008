"""The figures of ``buffer stats``: decisions by kind and reason, groups, and preference pairs."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import msgspec

from millstream.console.decided import rollout_rows
from millstream.ports import BufferStats, Log


def buffer_figures(log: Log, stats: BufferStats) -> dict[str, Any]:
    """``pairs``: for each group, successes × failures by admitted reward (above and at or below the
    middle of that group's rewards), the most pairs that DPO could draw; groups of equal rewards give none.
    """
    rows = rollout_rows(log)
    rewards: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        if row.decision != "refused" and row.reward is not None:
            rewards[row.group].append(row.reward)
    return {
        "decisions": dict(Counter(row.decision for row in rows)),
        "refused": dict(Counter(row.reason for row in rows if row.decision == "refused")),
        "groups": len(rewards),
        "group_sizes": {str(k): v for k, v in sorted(Counter(len(r) for r in rewards.values()).items())},
        "informative_groups": sum(max(r) > min(r) for r in rewards.values()),
        "pairs": sum(_pairs(r) for r in rewards.values()),
        "buffer": msgspec.to_builtins(stats),
    }


def _pairs(rewards: list[float]) -> int:
    middle = (max(rewards) + min(rewards)) / 2
    better = sum(reward > middle for reward in rewards)
    return better * (len(rewards) - better)
