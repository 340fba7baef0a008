"""Guardrails: what must not get clearly worse while gold gets better.

Each is a non-inferiority test: the one-sided 95 % bound of the harm is held against a margin. Inside
it the guardrail *holds*; when even the other end lies outside it is *violated*; between the two it is
*unproven*, which is no ground to promote and none to refuse.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from millstream.deploy.evaluation import TaskOutcome
from millstream.deploy.measures import Sums, bootstrap_interval, by_world, cost_per_success, ratio, tool_error_rate
from millstream.deploy.pairing import Pair
from millstream.deploy.statistics import non_inferiority_bound
from millstream.evidence import GateRow, RowState
from millstream.intervals import Interval, clustered_mean
from millstream.settings import GateSettings

NAMES = ("format", "tool_errors", "cost_per_success")


def guardrail_rows(pairs: Sequence[Pair], settings: GateSettings, seed: int) -> tuple[GateRow, ...]:
    """The three guardrails of NUMBERS, in the order of `NAMES`."""
    return (
        _format(pairs, settings),
        _tool_errors(pairs, settings, seed),
        _cost(pairs, settings, seed + 1),
    )


def sides(pairs: Sequence[Pair]) -> tuple[list[TaskOutcome], list[TaskOutcome]]:
    """All outcomes of the champion and all of the candidate."""
    return (
        [o for p in pairs for o in p.champion_outcomes],
        [o for p in pairs for o in p.candidate_outcomes],
    )


def standing(harm: Interval, margin: float) -> RowState:
    """Where the 90 % interval of the harm (positive is worse) lies against the margin. A NaN bound
    is never inside: the guardrail fails closed.
    """
    if harm.high <= margin:
        return "holds"
    return "violated" if harm.low > margin else "unproven"


def finite(value: float | None) -> float | None:
    """The value, or None where there is no finite one."""
    return value if value is not None and math.isfinite(value) else None


def _format(pairs: Sequence[Pair], settings: GateSettings) -> GateRow:
    both = [p for p in pairs if p.champion_outcomes and p.candidate_outcomes]
    left = [_mean_format(p.champion_outcomes) for p in both]
    right = [_mean_format(p.candidate_outcomes) for p in both]
    fall = [a - b for a, b in zip(left, right, strict=True)]
    worlds = [p.world for p in both]
    shown, harm = clustered_mean([-f for f in fall], worlds), non_inferiority_bound(fall, worlds)
    return GateRow(
        name="format",
        title="well-formed actions",
        champion=finite(_mean(left)),
        candidate=finite(_mean(right)),
        difference=finite(shown.estimate),
        low=finite(shown.low),
        high=finite(shown.high),
        bound=finite(-harm.high),
        margin=-settings.format_margin,
        state=standing(harm, settings.format_margin),
        decides=settings.guardrails_decide,
    )


def _mean_format(outcomes: Sequence[TaskOutcome]) -> float:
    return math.fsum(o.format_ok for o in outcomes) / len(outcomes)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan


def _tool_errors(pairs: Sequence[Pair], settings: GateSettings, seed: int) -> GateRow:
    champion, candidate = sides(pairs)
    sums = by_world((champion, candidate), lambda o: (o.tool_errors, o.calls), 2)
    shown, harm = bootstrap_interval(sums, _rise_of_rate, seed, (0.95, 0.90))
    return GateRow(
        name="tool_errors",
        title="tool calls that failed",
        champion=tool_error_rate(champion),
        candidate=tool_error_rate(candidate),
        difference=finite(shown.estimate),
        low=finite(shown.low),
        high=finite(shown.high),
        bound=finite(harm.high),
        margin=settings.tool_error_margin,
        state=standing(harm, settings.tool_error_margin),
        decides=settings.guardrails_decide,
    )


def _rise_of_rate(sums: Sums) -> float:
    return ratio(sums[2], sums[3]) - ratio(sums[0], sums[1])


def _cost(pairs: Sequence[Pair], settings: GateSettings, seed: int) -> GateRow:
    champion, candidate = sides(pairs)
    sums = by_world((champion, candidate), lambda o: (o.cost, float(o.success)), 2)
    measured = any(o.cost > 0 for o in (*champion, *candidate))
    shown, harm = bootstrap_interval(sums, _relative_rise, seed, (0.95, 0.90))
    left, right = cost_per_success(champion), cost_per_success(candidate)
    return GateRow(
        name="cost_per_success",
        title="cost per success",
        unit="ratio",
        champion=finite(left),
        candidate=finite(right),
        difference=finite(shown.estimate),
        low=finite(shown.low),
        high=finite(shown.high),
        bound=finite(harm.high),
        margin=settings.cost_margin,
        state=_cost_state(harm, settings, left, right) if measured else "not measured",
        decides=settings.guardrails_decide and measured,
        note=_cost_note(left, right, measured=measured),
    )


def _relative_rise(sums: Sums) -> float:
    """Candidate's cost per success over the champion's, − 1. Infinite when the candidate has no
    success, whatever the champion has: two policies that solve nothing are not equally cheap.
    """
    left_cost, left_success, right_cost, right_success = sums
    if right_success == 0:
        return math.inf
    if left_success == 0:
        return -1.0
    return ratio(right_cost / right_success, left_cost / left_success) - 1


def _cost_state(harm: Interval, settings: GateSettings, left: float, right: float) -> RowState:
    """Against a champion without a success there is nothing to compare a price with."""
    return "unproven" if math.isinf(left) and math.isinf(right) else standing(harm, settings.cost_margin)


def _cost_note(left: float, right: float, *, measured: bool) -> str:
    if not measured:
        return "no attempt reports a cost"
    without = [side for side, cost in (("champion", left), ("candidate", right)) if math.isinf(cost)]
    return f"infinite: no success of the {' and the '.join(without)}" if without else ""
