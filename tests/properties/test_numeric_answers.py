"""Reading numbers: no answer makes the grader fail, and what a number shows is what is read."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from millstream.events import Task
from millstream.grade import Scored
from millstream.graders.finqa import execute
from millstream.graders.numbers import clean, numbers
from millstream.graders.numeric import grade_answer

PIECES = st.sampled_from(
    [*"0,.-+()$% =}\n", "1", "12", "999", "\u2212", "e9", "e-3", "e999", "million", "bn", "k", "minus ", "answer: ",
     "result is ", "in 2014", "note ", "\\boxed{", "####", "\u00a0", "#1", "yes", "no", "basis points",
     "\U0001d7d9", "\u0663", "<answer>", "</answer>"]
)  # fmt: skip
ANSWERS = st.lists(PIECES, max_size=30).map("".join) | st.text(max_size=60)
REFERENCES = st.floats(allow_nan=False, allow_infinity=False) | ANSWERS


@given(ANSWERS, REFERENCES, st.sampled_from([None, "30.4%", "1e300", "5"]), st.sampled_from(["", "percent"]))
def test_no_answer_makes_the_grader_raise_or_fail(answer, reference, text, unit):
    """A policy can't escape its grade by an answer that breaks the grader: 0 or 1, or the task is at fault."""
    metadata = {key: value for key, value in (("answer", text), ("unit", unit)) if value}
    grade = grade_answer(answer, Task(reference=reference, metadata=metadata))
    if isinstance(reference, float):
        assert isinstance(grade, Scored)
    if isinstance(grade, Scored):
        assert grade.score in (0.0, 1.0)


@given(st.floats(min_value=-1e12, max_value=1e12), st.integers(0, 6))
def test_a_written_number_is_read_back(value, decimals):
    """Grouped or not, with its sign and its last place."""
    for text in (f"{value:,.{decimals}f}", f"{value:.{decimals}f}", f"so {value:,.{decimals}f}."):
        (found,) = numbers(clean(text))
        assert found.value == float(f"{value:.{decimals}f}")
        assert math.isclose(found.unit, 10.0**-decimals)


@given(st.floats(min_value=1e-6, max_value=1e9), st.booleans())
def test_the_rounded_executed_value_is_right_and_a_factor_is_wrong(gold, negative):
    """Five significant digits are always right; 0.6 % off, x100, /100 and the other sign never."""
    gold = -gold if negative else gold
    task = Task(reference=gold)
    digits = max(0, 4 - math.floor(math.log10(abs(gold))))
    assert grade_answer(f"{gold:.{digits}f}", task).score == 1.0
    for wrong in (gold * 1.006, gold * 100, gold / 100, -gold):
        assert grade_answer(f"{wrong:.{digits + 3}f}", task).score == 0.0


@given(
    st.lists(
        st.sampled_from(["add(", "exp(", "table_sum(", "1", "#0", ", ", ")", "none", "const_m1", "-8", "1e308", "EOF"]),
        max_size=15,
    )
)
def test_no_program_makes_the_executor_raise(parts):
    """Valid with a finite value, or invalid with a reason."""
    done = execute("".join(parts), [["1", "2", "-"]])
    assert done.valid != bool(done.reason)
    if isinstance(done.value, float):
        assert math.isfinite(done.value)
