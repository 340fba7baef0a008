"""Numbers against numbers: the cases people met in public, and the rates on FinQA."""

from __future__ import annotations

import importlib.util
import json
import math

import pytest

from millstream.errors import SettingsError
from millstream.events import Task
from millstream.grade import Abstained, Failed
from millstream.graders.builtin import builtin
from millstream.graders.numeric import grade_answer, numeric


def score(answer, reference, **metadata):
    return grade_answer(answer, Task(reference=reference, metadata=metadata)).score


@pytest.mark.parametrize(
    "answer", ["$48,250", "about 48,250 dollars.", "48250", "48,250.00", "USD 48,250", "48.25 thousand"]
)
def test_g01_money_with_thousands_separators(answer):
    """G01: A number is read whole, commas and all."""
    assert score(answer, 48250.0) == 1.0


def test_g02_a_comma_after_the_number():
    """G02: the marked final answer decides, and a lone comma is never the number."""
    assert score("Net result: 31, as required by note 4, part b,", 31.0) == 1.0
    assert score("the total, 31, is stated in note 4", 31.0) == 1.0
    assert score(",", 31.0) == 0.0
    assert score("1,23", 23.0) == 0.0


@pytest.mark.parametrize(
    ("answer", "right"), [("-8", 1), ("\u22128", 1), ("(8)", 1), ("minus 8", 1), ("8", 0), ("-(8)", 1)]
)
def test_g04_the_sign_must_be_written(answer, right):
    """G04: every minus sign, parentheses and the word `minus` are signs; nothing else is."""
    assert score(answer, -8.0) == right


@pytest.mark.parametrize(
    ("answer", "right"),
    [("13.44%", 1), ("0.1344", 1), ("13.44 percent", 1), ("13.44", 0), ("1344%", 0), ("0.13%", 0), ("0.1344%", 0)],
)
def test_g06_percent_against_fraction(answer, right):
    """G06: A percent sign is a factor of 1/100; a bare number is taken as it is written."""
    assert score(answer, 0.1344) == right


def test_g06_a_task_may_state_that_it_counts_percents():
    """G06: then the bare number is right, with or without the sign, and the fraction is wrong."""
    assert score("16.94", 16.938, unit="percent") == 1.0
    assert score("16.94%", 16.938, unit="percent") == 1.0
    assert score("0.1694", 16.938, unit="percent") == 0.0
    assert score("16.94%", 16.938) == 0.0


@pytest.mark.parametrize(
    ("answer", "right"), [("3.1 million", 1), ("$3.1M", 1), ("3,100 thousand", 1), ("0.0031bn", 1), ("3.1", 0)]
)
def test_g07_scale_words(answer, right):
    """G07: scale words multiply."""
    assert score(answer, 3100000.0) == right


@pytest.mark.parametrize("answer", ["3.1", "3.1 million", "$3,100 thousand", "3.1M"])
def test_g07_a_task_that_states_millions_takes_both(answer):
    """G07: the scale comes from the metadata, or from the question's `in millions`."""
    assert score(answer, 3.1, scale="million") == 1.0
    assert grade_answer(answer, Task(reference=3.1, question="total cost, in millions of dollars?")).score == 1.0


def test_basis_points_are_hundredths_of_a_percent():
    """100 basis points are one percent."""
    assert score("25 basis points", 0.0025) == 1.0
    assert score("25 bps", 0.0025) == 1.0
    assert score("100 basis points", 100.0) == 0.0


@pytest.mark.parametrize(
    ("answer", "right"),
    [("12.358112", 1), ("12.36", 1), ("12.355", 1), ("12.4", 0), ("12.37", 0), ("12.3", 0), ("12", 0), ("12.360", 1)],
)
def test_g08_a_displayed_gold_is_compared_at_its_digits(answer, right):
    """G08: the answer, rounded half-up to the gold's digits, equals it; fewer digits are wrong."""
    assert score(answer, "12.36") == right


@pytest.mark.parametrize(
    "options",
    [{"high": math.inf}, {"low": -1}, {"low": math.nan}, {"low": 0.01, "high": 0.001}, {"high": 1}, {"high": "big"}],
)
def test_g10_a_tolerance_that_is_none_is_refused(options):
    """G10: `SettingsError` when the grader is made."""
    with pytest.raises(SettingsError, match="finite"):
        numeric(**options)


@pytest.mark.parametrize("answer", ["nan", "", "inf", "1e999", "none", ".", "-", "%", "$", "()", None])
def test_g10_an_answer_without_a_finite_number_scores_0_with_a_reason(answer):
    """G10: the policy's failure, not the grader's: no exception."""
    grade = grade_answer(answer, Task(reference=5.0))
    assert grade.score == 0.0
    assert grade.label == "no_number"
    assert grade.reason


def test_g12_gold_text_and_executed_gold_disagree():
    """G12: the executed value decides; the conflict is recorded; a match with the text alone is never paid."""
    task = Task(reference=-0.30435, metadata={"answer": "30.4%"})
    right, text_only, wrong = (grade_answer(text, task) for text in ("-30.4%", "30.4%", "12%"))
    assert (right.score, right.label) == (1.0, "correct_gold_conflict")
    assert (text_only.score, text_only.label) == (0.0, "text_only")
    assert (wrong.score, wrong.label) == (0.0, "wrong_gold_conflict")
    assert "gold_conflict" in right.reason


@pytest.mark.parametrize(
    ("answer", "gold", "right"), [("0", 0.0, 1), ("0.00%", 0.0, 1), ("0.4", 0.0, 0), ("1e-10", 0.0, 1)]
)
def test_a_gold_of_zero_has_an_absolute_tolerance(answer, gold, right):
    """Half the shown unit, or 1e-9."""
    assert score(answer, gold) == right


@pytest.mark.parametrize(
    ("answer", "gold", "right"),
    [
        # tolerance = clip(half of the shown unit, 0.1 % of 200 = 0.2, 0.5 % of 200 = 1)
        ("200.2", 200.0, 1),
        ("200.21", 200.0, 0),
        ("200", 200.4, 1),
        ("201", 200.4, 0),
        ("2e2", 200.9, 1),
        ("2e2", 201.5, 0),
    ],
)
def test_the_tolerance_is_what_the_answer_shows_within_bounds(answer, gold, right):
    """Half of the displayed unit, at least 0.1 % and at most 0.5 % of the gold."""
    assert score(answer, gold) == right


@pytest.mark.parametrize(
    ("text", "gold"),
    [
        (r"First 3, then \boxed{42} in all, of 100", 42.0),
        ("#### 42\n", 42.0),
        ("<answer>42</answer> (was 17)", 42.0),
        ("The answer is 42, up from 17.", 42.0),
        ("Answer: 10 + 32 = 42", 42.0),
        ("answer: 1. No. Final answer: 42", 42.0),
        ("17 + 25 = 42", 42.0),
        ("It rose to 42 in 2014.", 42.0),
        ("It was 42 (see note 4).", 42.0),
        ("In FY2014 it was 42", 42.0),
        ("-5 ( 5 )", -5.0),
        ("44.1 - 56.7 = -12.6", -12.6),
    ],
)
def test_the_final_answer_rule(text, gold):
    """Marked, alone, or last but for dates and labels."""
    assert score(text, gold) == 1.0


@pytest.mark.parametrize("text", ["42 43", "Answer: 43 or 42", "42, no 17", "10-42", "x42", "v1.42", "42nd"])
def test_listing_numbers_does_not_help(text):
    """One number counts, so a list that holds the gold is no answer; parts of words are no numbers."""
    assert score(text, 42.0) == (1.0 if text == "10-42" else 0.0)


def test_yes_and_no_are_compared_as_words():
    """FinQA's `greater` says yes or no; naming both is wrong."""
    assert score("The answer is no, it is less.", "no") == 1.0
    assert score("yes", "no") == 0.0
    assert score("yes or no", "no") == 0.0
    assert score("not known", "no") == 0.0


def test_a_reference_that_is_no_number_abstains_and_a_broken_one_fails():
    """Neither is the policy's doing."""
    assert isinstance(grade_answer("1", Task(reference="Paris")), Abstained)
    assert isinstance(grade_answer("1", Task()), Abstained)
    assert isinstance(grade_answer("1", Task(reference=math.nan)), Failed)


def test_correct_takes_texts_too(make):
    """`correct` is `numeric` where the reference is a number, else exact."""
    correct = builtin("correct")
    assert correct(make(answer="$7.00", reference=7.0)).score == 1.0
    assert correct(make(answer=" paris ", reference="Paris")).score == 1.0
    assert correct(make(answer="Rome", reference="Paris")).score == 0.0
    assert isinstance(correct(make(answer="Rome")), Abstained)


def test_rates_on_finqa(data, root):
    """Right renderings of real answers are accepted (≥ 99 %), systematic mistakes never."""
    spec = importlib.util.spec_from_file_location("numeric_answers", root / "bench" / "numeric_answers.py")
    bench = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bench)
    items = json.loads((data / "finqa" / "finqa_50.json").read_bytes())
    asked, accepted, wrong, paid = bench.measure(items)
    assert asked.total() > 600
    assert wrong.total() > 600
    assert accepted.total() / asked.total() >= 0.99
    assert not +paid
