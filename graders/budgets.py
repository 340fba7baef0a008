"""Budgets: steps, calls, tokens, cost and time of a run against what they may be.

A run within its budget gets 1; beyond it the score falls in a straight line to 0 at twice the budget (``hard``: to 0
at once). What was not recorded is not guessed: the grader abstains. None of these says that the work was done: use
them beside a grader that does, multiplied with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from millstream.errors import SettingsError
from millstream.grade import Grade, abstain, score
from millstream.prices import origin
from millstream.trajectory import Trajectory

VERSION: Final = 1
COST_VERSION: Final = 2
"""2: a call whose cost is not known makes it abstain; before, it counted as free."""


def budget(
    *, max_steps: int = 0, max_calls: int = 0, max_tokens: int = 0, hard: bool = False
) -> Callable[[Trajectory], Grade]:
    """The grader ``budget``: the least of the scores of the budgets that are given (0: none). Tokens are those
    that the policy wrote. Raises `SettingsError` for a negative one.
    """
    limits = {"steps": max_steps, "calls": max_calls, "tokens": max_tokens}
    for name, limit in limits.items():
        _check("budget", f"max_{name}", limit)

    def grade(t: Trajectory) -> Grade:
        if not any(limits.values()):
            return abstain("no budget: set max_steps, max_calls or max_tokens in [graders.options.budget]")
        tokens = tokens_of(t)
        if max_tokens and tokens is None:
            return abstain("the tokens of the policy's actions were not recorded")
        used = {"steps": len(t.responses), "calls": sum(len(r.tool_calls) for r in t.responses), "tokens": tokens or 0}
        told = {name: within(used[name], limit, hard=hard) for name, limit in limits.items() if limit}
        over = [f"{used[name]} {name} of {limits[name]}" for name, value in told.items() if value < 1]
        return score(
            min(told.values()), label="over" if over else "within", reason="; ".join(over) or "within the budget"
        )

    return grade


def cost(*, most: float = 0.0, hard: bool = False) -> Callable[[Trajectory], Grade]:
    """The grader ``cost``: what the model calls cost, in the price table's currency, against ``most``."""
    _check("cost", "most", most)

    def grade(t: Trajectory) -> Grade:
        if not most:
            return abstain("no budget: set most in [graders.options.cost]")
        usages = [response.usage for response in t.responses]
        if usages and not any(origin(usage) in ("told", "priced") for usage in usages):
            return abstain("the cost of the model calls was not recorded")
        unknown = sum(origin(usage) == "unknown" for usage in usages)
        if unknown:
            return abstain(
                f"the cost of {unknown} of {len(usages)} model calls is not known: their models have no price"
            )
        return _graded(math.fsum(usage.cost for usage in usages), most, "", hard=hard)

    return grade


def latency(*, most_s: float = 0.0, hard: bool = False) -> Callable[[Trajectory], Grade]:
    """The grader ``latency``: seconds from a run's start to its end, by its producers' clocks, against ``most_s``."""
    _check("latency", "most_s", most_s)

    def grade(t: Trajectory) -> Grade:
        if not most_s:
            return abstain("no budget: set most_s in [graders.options.latency]")
        seconds = seconds_of(t)
        if seconds is None:
            return abstain("the times of the run's start and end were not recorded, or the clock went back")
        return _graded(seconds, most_s, " s", hard=hard)

    return grade


def within(used: float, limit: float, *, hard: bool) -> float:
    """1 up to the limit, 0 from twice the limit on (``hard``: beyond it), a straight line between."""
    if used <= limit:
        return 1.0
    return 0.0 if hard else max(0.0, 2.0 - used / limit)


def tokens_of(t: Trajectory) -> int | None:
    """The tokens that the policy wrote: counted, else as told; None where neither is known of an action."""
    total = 0
    for response in t.responses:
        count = response.usage.output_tokens if response.token_ids is None else len(response.token_ids)
        if count <= 0 and (response.text or response.tool_calls or response.reasoning):
            return None
        total += max(0, count)
    return total


def seconds_of(t: Trajectory) -> float | None:
    """How long a run took, as its producers told."""
    if t.started is None or t.ended is None or not t.started.time_ns or t.ended.time_ns < t.started.time_ns:
        return None
    return (t.ended.time_ns - t.started.time_ns) / 1e9


def _graded(used: float, most: float, unit: str, *, hard: bool) -> Grade:
    value = within(used, most, hard=hard)
    return score(value, label="within" if value == 1 else "over", reason=f"{used:g}{unit} of {most:g}{unit}")


def _check(grader: str, option: str, limit: float) -> None:
    if isinstance(limit, bool) or not isinstance(limit, int | float) or not 0 <= limit < float("inf"):
        raise SettingsError(f"{grader}: {option} = {limit!r} must be a number of at least 0")
