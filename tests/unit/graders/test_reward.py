"""The reward formula: what it computes, and when it has no value."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import SettingsError
from millstream.grade import Abstained, Censored, Failed, Scored
from millstream.graders.reward import Formula
from millstream.settings import RewardSettings


def value(text, low=-1e9, high=1e9, **scores):
    return Formula(text, low, high).reward({n: Scored(score=s) for n, s in scores.items()}).value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("2 ^ 3 ^ 2", 512),
        ("-2 ^ 2", -4),
        ("2 ^ -1", 0.5),
        ("8 / 4 / 2", 1),
        ("10 - 4 - 3", 3),
        ("--1", 1),
        ("+a", 0.5),
        ("min(a, b, 1)", 0.25),
        ("max(a, b)", 0.5),
        ("abs(-a)", 0.5),
        ("floor(1.7) + ceil(1.2)", 3),
        ("exp(0) + log(1) + sqrt(4)", 3),
        ("1e-1 + .5 + 2.", 2.6),
        ("feedback.reward * 2", 2),
        ("0.8*a + 0.1*b*a + 0.1*1", 0.8 * 0.5 + 0.1 * 0.25 * 0.5 + 0.1),
    ],
)
def test_arithmetic(text, expected):
    """Signs, precedence, functions and dotted names."""
    assert value(text, a=0.5, b=0.25, **{"feedback.reward": 1.0}) == pytest.approx(expected)


@pytest.mark.parametrize(
    "text",
    [
        "", "1 +", "(1", "1)", "a b", "1..2", "a.b.", "min()", "abs(1, 2)", "eval(1)", "__import__('os')", "a[0]",
        "a if b else c", "a and b", "lambda: 1", "a ** b", "a == b", "'x'", "a;b", "(" * 100 + "1" + ")" * 100,
        "2" + "^2" * 200, "1 " * 2000,
    ],
)  # fmt: skip
def test_what_is_no_formula_is_refused(text):
    """Nothing is ever evaluated as code."""
    with pytest.raises(SettingsError, match="formula"):
        Formula(text)


@pytest.mark.parametrize(("low", "high"), [(1, 0), (0, 0), (0, math.inf), (math.nan, 1)])
def test_a_range_must_be_finite_and_ordered(low, high):
    """`SettingsError`."""
    with pytest.raises(SettingsError, match="range"):
        Formula("1", low, high)


@pytest.mark.parametrize(
    ("grade", "why"),
    [
        (None, "b: no grade yet"),
        (Failed(kind="timeout", reason="slow"), "b: failed (timeout): slow"),
        (Abstained(reason="no reference"), "b: abstained: no reference"),
        (Censored(reason="gap"), "b: censored: gap"),
    ],
)
def test_a_grade_that_is_not_scored_leaves_no_reward(grade, why):
    """Also when its weight is 0 or its branch would not count: never a number from a failure."""
    grades = {"a": Scored(score=1.0)} | ({"b": grade} if grade else {})
    assert Formula("a + 0*b").reward(grades) == (None, why)
    assert Formula("max(a, b)").reward(grades).value is None


@pytest.mark.parametrize(
    "text", ["1/0", "log(0)", "sqrt(-1)", "exp(1000)", "(-8)^0.5", "10^400", "1e308*10", "0*1e999"]
)
def test_a_formula_without_a_finite_value_says_so(text):
    """No exception, no clamping."""
    found = Formula(text).reward({})
    assert found.value is None
    assert found.why


def test_a_value_outside_the_range_is_no_reward():
    """Never clamped."""
    formula = Formula("2*a", 0, 1)
    assert formula.reward({"a": Scored(score=0.75)}) == (None, "the formula gives 1.5, outside [0, 1]")
    assert formula.reward({"a": Scored(score=0.5)}).value == 1.0


def test_g24_a_group_keeps_three_rewards_of_four():
    """Rewards 1, 0, <exception>, 1: the third has none."""
    formula = Formula("correct")
    grades = [Scored(score=1.0), Scored(score=0.0), Failed(kind="error", reason="x"), Scored(score=1.0)]
    assert [formula.reward({"correct": g}).value for g in grades] == [1.0, 0.0, None, 1.0]


def test_unknown_names_are_answered_with_the_nearest():
    """Feedback may always come, whatever it is called."""
    formula = Formula("corect + feedback + feedback.reward")
    with pytest.raises(SettingsError, match="did you mean 'correct'"):
        formula.check(["correct", "format"])
    Formula("correct + feedback.reward").check(["correct"])


def test_the_range_maps_to_the_unit_interval():
    """Trackers and e-processes take rewards in [0, 1]."""
    formula = Formula("1", -1.5, 2.5)
    assert [formula.to_unit(v) for v in (-1.5, 0.5, 2.5)] == [0.0, 0.5, 1.0]


def test_the_settings_hold_a_formula():
    """The default is feedback alone."""
    formula = Formula.of(RewardSettings())
    assert formula.names == {"feedback"}
    assert formula.formula == "feedback"


@given(st.text(alphabet="ab1.+-*/^(), efgmin", max_size=40))
def test_any_text_is_a_formula_or_refused(text):
    """The parser never raises anything else, and a formula never anything at all."""
    try:
        formula = Formula(text, -1e300, 1e300)
    except SettingsError:
        return
    found = formula.reward({name: Scored(score=0.5) for name in formula.names})
    assert (found.value is None) == bool(found.why)
