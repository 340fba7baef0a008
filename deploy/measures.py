"""Measures of a side: what each line of the gate's table says of one policy (docs/promotion.md).

The definitions are those of `millstream.graders.metrics`, taken over the outcomes of an evaluation. Only
scored attempts enter success; rates of calls and costs are ratios of sums, never means of ratios.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from millstream.deploy.evaluation import TaskOutcome
from millstream.graders import metrics
from millstream.intervals import Interval, bootstrap_clusters, quantile

Sums = tuple[float, ...]


def ratio(numerator: float, denominator: float) -> float:
    """A ratio of sums; infinite over nothing, except 0/0 which is 0 (no call, no error)."""
    if denominator > 0:
        return numerator / denominator
    return math.inf if numerator > 0 else 0.0


def cost_per_success(outcomes: Sequence[TaskOutcome]) -> float:
    """Σ all cost / Σ successes: infinite at no success, never 0."""
    return metrics.cost_per_success([o.cost for o in outcomes], sum(o.success for o in outcomes))


def tool_error_rate(outcomes: Sequence[TaskOutcome]) -> float:
    """Failed calls / calls; 0 when nothing was called."""
    return ratio(sum(o.tool_errors for o in outcomes), sum(o.calls for o in outcomes))


def tool_efficiency(outcomes: Sequence[TaskOutcome]) -> float | None:
    """Useful calls / calls; None when nothing was called."""
    return metrics.tool_efficiency(sum(o.useful_calls for o in outcomes), sum(o.calls for o in outcomes))


def depth_of_success(outcomes: Sequence[TaskOutcome]) -> float | None:
    """Mean reasoning depth over successes only (to report, never to reward); None without one."""
    depths = [o.depth for o in outcomes if o.success]
    return sum(depths) / len(depths) if depths else None


def mean_steps(outcomes: Sequence[TaskOutcome]) -> float | None:
    """Mean steps an attempt; None without an attempt."""
    return sum(o.steps for o in outcomes) / len(outcomes) if outcomes else None


def by_world(sides: Sequence[Sequence[TaskOutcome]], columns: Callable[[TaskOutcome], Sums], width: int) -> list[Sums]:
    """Per world the column sums of every side, side after side: what a cluster bootstrap resamples."""
    worlds = sorted({o.world for side in sides for o in side})
    place = {world: index for index, world in enumerate(worlds)}
    table = [[0.0] * (width * len(sides)) for _ in worlds]
    for number, side in enumerate(sides):
        for outcome in side:
            row = table[place[outcome.world]]
            for column, value in enumerate(columns(outcome)):
                row[number * width + column] += value
    return [tuple(row) for row in table]


def bootstrap_interval(
    sums: Sequence[Sums], statistic: Callable[[Sums], float], seed: int, levels: Sequence[float]
) -> list[Interval]:
    """A statistic of column sums with its percentile interval over whole worlds, one for each level
    (from the same resamples); (−inf, inf) with fewer than two worlds.
    """
    n = len(sums)
    whole = statistic(tuple(map(math.fsum, zip(*sums, strict=True)))) if sums else math.nan
    if n < 2:
        return [Interval(whole, -math.inf, math.inf, n, n) for _ in levels]
    values = bootstrap_clusters(sums, statistic, seed)
    tails = [(1 - level) / 2 for level in levels]
    return [Interval(whole, quantile(values, tail), quantile(values, 1 - tail), n, n) for tail in tails]
