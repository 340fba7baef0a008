"""Figures over many runs, defined once (sources in docs/graders.md)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from millstream.graders.usage import uses_of
from millstream.prices import origin
from millstream.trajectory import Trajectory


def pass_at_k_of(n: int, c: int, k: int) -> float:
    """One task's pass@k: the chance that at least one of k attempts succeeds, unbiased from c successes in n
    attempts: 1 − C(n−c, k)/C(n, k) (Chen et al. 2021); Accuracy@k where success is a right answer. Raises
    `ValueError` when k > n: not identifiable.
    """
    _check(n, c, k)
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)


def pass_hat_k_of(n: int, c: int, k: int) -> float:
    """One task's pass^k: the chance that all of k attempts succeed: C(c, k)/C(n, k) (Yao et al. 2024)."""
    _check(n, c, k)
    return math.comb(c, k) / math.comb(n, k)


def pass_at_k(tasks: Iterable[tuple[int, int]], k: int) -> float | None:
    """Mean of `pass_at_k_of` over tasks given as (attempts n, successes c). Tasks with fewer than k attempts
    can't tell and are left out; None when none is left.
    """
    return _mean([pass_at_k_of(n, c, k) for n, c in tasks if n >= k or k < 1])


def pass_hat_k(tasks: Iterable[tuple[int, int]], k: int) -> float | None:
    """Mean of `pass_hat_k_of` over tasks, as `pass_at_k`."""
    return _mean([pass_hat_k_of(n, c, k) for n, c in tasks if n >= k or k < 1])


def _check(n: int, c: int, k: int) -> None:
    if k < 1:
        raise ValueError(f"k = {k}; it must be at least 1")
    if not 0 <= c <= n:
        raise ValueError(f"{c} successes of {n} attempts")
    if k > n:
        raise ValueError(f"pass@{k} needs at least {k} attempts a task, not {n}")


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def success_bounds(successes: int, scored: int, unscored: int) -> tuple[float, float]:
    """What success can be when runs have no score (the grader abstained or failed, the run was censored):
    from all of them failures to all of them successes (worst-case bounds: Manski 1990). (0, 1) of no run.
    """
    n = scored + unscored
    return (successes / n, (successes + unscored) / n) if n else (0.0, 1.0)


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
    return math.fsum(costs) / successes if successes else math.inf


def tool_efficiency(useful: int, calls: int) -> float | None:
    """Useful calls / calls, a ratio of sums; None when nothing was called."""
    return useful / calls if calls else None


def cost_of(t: Trajectory) -> float | None:
    """What the model calls of a run cost, in the price table's currency; None when that of one is not known."""
    usages = [response.usage for response in t.responses]
    if any(origin(usage) == "unknown" for usage in usages):
        return None
    return math.fsum(usage.cost for usage in usages)


def tool_errors(t: Trajectory) -> tuple[int, int]:
    """(calls that came back with an error or not at all, calls)."""
    uses = uses_of(t)
    return sum(use.result is None or bool(use.result.error) for use in uses), len(uses)
