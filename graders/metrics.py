"""Figures over many runs, defined once (sources in docs/graders.md)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from millstream.graders.usage import uses_of
from millstream.trajectory import Trajectory


def pass_at_k(tasks: Iterable[tuple[int, int]], k: int) -> float | None:
    """The chance that at least one of k attempts succeeds, averaged over tasks given as (attempts n,
    successes c): mean of 1 − C(n−c, k)/C(n, k) (Chen et al. 2021). Tasks with fewer than k attempts can't
    tell and are left out; None when none is left.
    """
    values = [1.0 - math.comb(n - c, k) / math.comb(n, k) for n, c in _checked(tasks, k)]
    return sum(values) / len(values) if values else None


def pass_hat_k(tasks: Iterable[tuple[int, int]], k: int) -> float | None:
    """The chance that all of k attempts succeed: mean of C(c, k)/C(n, k) (Yao et al. 2024)."""
    values = [math.comb(c, k) / math.comb(n, k) for n, c in _checked(tasks, k)]
    return sum(values) / len(values) if values else None


def _checked(tasks: Iterable[tuple[int, int]], k: int) -> list[tuple[int, int]]:
    if k < 1:
        raise ValueError(f"k = {k}; it must be at least 1")
    kept = []
    for n, c in tasks:
        if not 0 <= c <= n:
            raise ValueError(f"{c} successes of {n} attempts")
        if n >= k:
            kept.append((n, c))
    return kept


def reasoning_depth(t: Trajectory) -> int:
    """The longest causal chain of the policy's steps: step j follows step i when it is the first to use a
    result of i (see `usage`); the last action closes every chain that it follows. 0 without a step.

    Report it conditional on success; never reward it.
    """
    count = len(t.responses)
    depth = [1] * count
    for use in sorted(uses_of(t), key=lambda use: use.action):
        target = use.used_by
        if target is not None and target < count:
            depth[target] = max(depth[target], depth[use.action] + 1)
    return max(depth, default=0)


def cost_per_success(costs: Sequence[float], successes: int) -> float:
    """Σ all cost / successes: the failures are paid for too. Infinite without a success, never 0."""
    return sum(costs) / successes if successes else math.inf


def cost_of(t: Trajectory) -> float:
    """What the model calls of a run cost, in the price table's currency."""
    return sum(response.usage.cost for response in t.responses)


def tool_errors(t: Trajectory) -> tuple[int, int]:
    """(calls that came back with an error or not at all, calls)."""
    uses = uses_of(t)
    return sum(use.result is None or bool(use.result.error) for use in uses), len(uses)
