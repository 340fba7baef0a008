"""Guardrails and measures on sheets whose figures can be worked out by hand."""

import math

import msgspec
import pytest

from millstream.deploy.evaluation import TaskOutcome
from millstream.deploy.guardrails import guardrail_rows, standing
from millstream.deploy.measures import cost_per_success, depth_of_success, mean_steps, ratio, tool_efficiency
from millstream.deploy.pairing import pair
from millstream.grade import score
from millstream.intervals import Interval
from millstream.settings import GateSettings


def rows(champion, candidate):
    """The guardrail rows by name."""
    return {row.name: row for row in guardrail_rows(pair(champion, candidate).pairs, GateSettings(), seed=1)}


def test_equal_sides_hold_every_guardrail(sheet) -> None:
    """The same sheet twice: no fall, no rise, same price."""
    found = rows(sheet(150), sheet(150))
    assert {row.state for row in found.values()} == {"holds"}
    assert found["format"].difference == 0
    assert found["cost_per_success"].difference == 0


@pytest.mark.parametrize(("well_formed", "state"), [(0.99, "holds"), (0.90, "violated")])
def test_format_margin_is_three_points(sheet, well_formed: float, state: str) -> None:
    """A fall of one point is inside the margin, of ten outside."""
    assert rows(sheet(150), sheet(150, format_ok=well_formed))["format"].state == state


def test_a_fall_near_the_margin_is_unproven(sheet) -> None:
    """3 points lost on tasks here and there: the bound lies beyond the margin, the estimate on it."""
    fallen = [msgspec.structs.replace(o, format_ok=float(i % 33 != 0)) for i, o in enumerate(sheet(150))]
    assert rows(sheet(150), fallen)["format"].state == "unproven"


@pytest.mark.parametrize(("errors", "state"), [(0, "holds"), (1, "violated")])
def test_tool_errors_are_a_share_of_calls(sheet, errors: int, state: str) -> None:
    """One of four calls failing everywhere is +25 points."""
    found = rows(sheet(150), sheet(150, tool_errors=errors))["tool_errors"]
    assert found.state == state
    assert found.candidate == errors / 4


def test_cost_is_compared_per_success(sheet) -> None:
    """Twice the cost for twice the successes is the same price; for the same successes it is +100 %."""
    assert rows(sheet(75), sheet(150, cost=2.0))["cost_per_success"].difference == pytest.approx(0)
    dearer = rows(sheet(150), sheet(150, cost=2.0))["cost_per_success"]
    assert dearer.difference == pytest.approx(1.0)
    assert dearer.state == "violated"


def test_no_success_is_an_infinite_price_not_none(sheet) -> None:
    """A candidate that solves nothing is infinitely dear; two that solve nothing cannot be compared."""
    lost = rows(sheet(150), sheet(0))["cost_per_success"]
    assert (lost.candidate, lost.state) == (None, "violated")
    assert "infinite: no success of the candidate" in lost.note
    assert rows(sheet(0), sheet(0))["cost_per_success"].state == "unproven"
    assert rows(sheet(0), sheet(150))["cost_per_success"].state == "holds"


def test_a_cost_that_nobody_reports_does_not_decide(sheet) -> None:
    """Without any cost the row says so."""
    found = rows(sheet(150, cost=0.0), sheet(150, cost=0.0))["cost_per_success"]
    assert (found.state, found.decides) == ("not measured", False)


def test_a_nan_bound_is_never_inside_the_margin() -> None:
    """Fail closed: a bound that is no number does not hold."""
    assert standing(Interval(math.nan, math.nan, math.nan, 0), 0.03) == "unproven"


def test_measures_by_hand() -> None:
    """Two runs: 10 for a success of depth 3, 30 for a failure; 5 calls, 4 useful."""
    runs = [
        TaskOutcome(task_id="a", world="w", gold=score(1.0), calls=3, useful_calls=3, depth=3, steps=4, cost=10),
        TaskOutcome(task_id="b", world="w", gold=score(0.0), calls=2, useful_calls=1, depth=9, steps=8, cost=30),
    ]
    assert cost_per_success(runs) == 40
    assert depth_of_success(runs) == 3
    assert tool_efficiency(runs) == pytest.approx(0.8)
    assert mean_steps(runs) == 6
    assert depth_of_success(runs[1:]) is None
    assert cost_per_success(runs[1:]) == math.inf
    assert tool_efficiency([]) is None


def test_ratios_over_nothing() -> None:
    """Nothing over nothing is no rate; something over nothing is infinite."""
    assert ratio(0, 0) == 0
    assert ratio(1, 0) == math.inf
