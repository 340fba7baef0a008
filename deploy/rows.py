"""The lines of the gate's table that are no guardrails: gold, the lineage's own reward, and what is
shown beside them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from millstream.deploy.evaluation import TaskOutcome
from millstream.deploy.guardrails import finite, sides
from millstream.deploy.measures import depth_of_success, mean_steps, tool_efficiency
from millstream.deploy.pairing import Pair
from millstream.evidence import GateRow, PairedTest, RowState, Unit
from millstream.grade import score_of
from millstream.intervals import Interval, clustered_mean, clustered_rate


def gold_row(pairs: Sequence[Pair], test: PairedTest) -> GateRow:
    """pass@1 on gold, unscored attempts bounded against the candidate. *better* and *worse* need both
    the paired test at alpha, which counts tasks as independent, and the one-sided bound at 1 − alpha
    clustered by world (`bound`, held against 0), which does not. Simulated at α .01 on 300 tasks of 30
    worlds: with gains that vary by 15 points between worlds McNemar alone errs in 5 %, both in .9 %.
    """
    row = _paired_row("gold", "success (gold, pass@1)", pairs, [(p.champion, p.candidate) for p in pairs])
    bounds = clustered_mean([p.difference for p in pairs], [p.world for p in pairs], level=1 - 2 * test.alpha)
    state: RowState = "unclear"
    if test.p_better <= test.alpha and bounds.above_zero:
        state = "better"
    elif test.p_worse <= test.alpha and bounds.below_zero:
        state = "worse"
    return replace(row, state=state, decides=True, bound=finite(bounds.low), margin=0.0)


def proxy_row(pairs: Sequence[Pair]) -> tuple[GateRow, ...]:
    """The lineage's own reward on both sides, over the tasks where it is scored everywhere; nothing
    when it is not measured. Its state tells where the clustered interval lies.
    """
    kept, values = [], []
    for found in pairs:
        left, right = _mean_proxy(found.champion_outcomes), _mean_proxy(found.candidate_outcomes)
        if left is not None and right is not None:
            kept.append(found)
            values.append((left, right))
    if not kept:
        return ()
    note = "" if len(kept) == len(pairs) else f"scored on {len(kept)} of {len(pairs)} tasks"
    row = _paired_row("proxy", "its own reward (proxy)", kept, values, note)
    return (row,)


def shown_rows(pairs: Sequence[Pair]) -> tuple[GateRow, ...]:
    """Reasoning depth (of successes), tool efficiency and steps: shown, never decided by."""
    champion, candidate = sides(pairs)
    return (
        _shown("depth", "reasoning depth of successes", "count", depth_of_success, champion, candidate),
        _shown("tool_efficiency", "useful tool calls", "rate", tool_efficiency, champion, candidate),
        _shown("steps", "steps an attempt", "count", mean_steps, champion, candidate),
    )


def _mean_proxy(outcomes: Sequence[TaskOutcome]) -> float | None:
    scores = [score_of(o.proxy) for o in outcomes]
    known = [s for s in scores if s is not None]
    return math.fsum(known) / len(known) if known and len(known) == len(scores) else None


def _paired_row(
    name: str, title: str, pairs: Sequence[Pair], values: Sequence[tuple[float, float]], note: str = ""
) -> GateRow:
    worlds = [p.world for p in pairs]
    left, right = [a for a, _ in values], [b for _, b in values]
    difference = clustered_mean([b - a for a, b in values], worlds)
    champion, candidate = _own(left, worlds), _own(right, worlds)
    state: RowState = "better" if difference.above_zero else "worse" if difference.below_zero else "unclear"
    return GateRow(
        name=name,
        title=title,
        champion=finite(champion.estimate),
        candidate=finite(candidate.estimate),
        champion_range=_range(champion),
        candidate_range=_range(candidate),
        difference=finite(difference.estimate),
        low=finite(difference.low),
        high=finite(difference.high),
        state=state,
        note=note,
    )


def _own(values: Sequence[float], worlds: Sequence[str]) -> Interval:
    binary = all(v in (0.0, 1.0) for v in values)
    return clustered_rate(values, worlds) if binary else clustered_mean(values, worlds)


def _range(interval: Interval) -> tuple[float, float] | None:
    return (interval.low, interval.high) if math.isfinite(interval.high - interval.low) else None


def _shown(
    name: str,
    title: str,
    unit: Unit,
    measure: Callable[[Sequence[TaskOutcome]], float | None],
    champion: Sequence[TaskOutcome],
    candidate: Sequence[TaskOutcome],
) -> GateRow:
    left, right = measure(champion), measure(candidate)
    return GateRow(
        name=name,
        title=title,
        unit=unit,
        champion=finite(left),
        candidate=finite(right),
        difference=right - left if left is not None and right is not None else None,
    )
