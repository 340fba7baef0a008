"""The decorator, what a grader may return, and finding graders by name."""

from __future__ import annotations

import math

import pytest

import millstream as ms
from millstream.errors import GraderError, SettingsError
from millstream.grade import Abstained, Censored, Failed, Scored
from millstream.graders.registry import Grader, Registry, as_grade, grader


def test_a_bare_decorator_makes_a_grader_of_the_functions_name(make):
    """`@ms.grader` without options."""

    @ms.grader
    def correct(t: ms.Trajectory) -> ms.Grade:
        if t.task.reference is None:
            return ms.abstain("no reference")
        return ms.score(float(t.final_answer == t.task.reference), reason="exact")

    assert isinstance(correct, Grader)
    assert correct.name == "correct"
    assert correct(make(answer="7")) == Abstained(reason="no reference")
    assert correct(make(answer="7", reference="7")) == Scored(score=1.0, reason="exact")
    assert correct(make(answer="8", reference="7")) == Scored(score=0.0, reason="exact")


def test_options_give_a_name_and_a_range(make):
    """`@ms.grader(name=…, low=…, high=…)`: a bare number in the declared range is a score."""

    @ms.grader(name="length", low=0, high=1000)
    def measure(t: ms.Trajectory) -> float:
        return len(t.final_answer or "")

    assert measure.name == "length"
    assert measure(make(answer="seven")) == Scored(score=5.0)


@pytest.mark.parametrize("value", [True, False, None, math.nan, math.inf, "0.5", [1], 1.01, -0.01, {"score": 1}])
def test_anything_but_a_number_in_range_is_a_failed_grade(value):
    """bool, None, NaN, text and a number outside the range are never a score."""
    grade = as_grade(value)
    assert isinstance(grade, Failed)
    assert grade.kind == "unparsable"


@pytest.mark.parametrize("grade", [Scored(score=0.5), Abstained(reason="x"), Failed(kind="timeout", reason="x")])
def test_a_grade_passes_as_it_is(grade):
    """Every kind of grade may be returned."""
    assert as_grade(grade) is grade


def test_a_score_outside_the_declared_range_fails():
    """Also when it comes as a `Scored`: nothing is clamped."""
    assert isinstance(as_grade(Scored(score=7.0)), Failed)
    assert as_grade(Scored(score=7.0), 0, 10) == Scored(score=7.0)


@pytest.mark.parametrize("error", [ValueError("bad"), GraderError("no judge"), RecursionError("deep"), KeyError("x")])
def test_an_exception_is_a_failed_grade_with_its_text(make, error):
    """A grader that raises gives `Failed(error)`, never a number and never an exception."""

    @grader
    def broken(t: ms.Trajectory) -> float:
        raise error

    grade = broken(make())
    assert isinstance(grade, Failed)
    assert grade.kind == "error"
    assert type(error).__name__ in grade.reason


@pytest.mark.parametrize("options", [{"low": 1, "high": 0}, {"high": math.inf}, {"name": "a b"}, {"name": "feedback"}])
def test_a_bad_name_or_range_is_refused_where_it_is_written(options):
    """`SettingsError` at decoration."""
    with pytest.raises(SettingsError):
        grader(**options)(lambda t: 1.0)


def test_an_unknown_name_is_answered_with_the_nearest():
    """The error names the grader that was probably meant."""
    registry = Registry()
    registry.add(Grader("numeric", float))
    with pytest.raises(SettingsError, match="did you mean 'numeric'"):
        registry.get("numerc")


def test_ones_own_grader_stands_before_a_builtin_of_its_name():
    """In either order of adding; two of one's own are an error."""
    mine, theirs = Grader("correct", float), Grader("correct", float, source="builtin")
    for order in ([mine, theirs], [theirs, mine]):
        registry = Registry()
        for made in order:
            registry.add(made)
        assert registry.get("correct") is mine
    with pytest.raises(SettingsError, match="two graders"):
        registry.add(Grader("correct", float))


def test_a_censored_grade_keeps_its_reason():
    """The fourth kind passes too."""
    assert as_grade(Censored(reason="gap")) == Censored(reason="gap")
