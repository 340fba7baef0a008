"""TAT-QA: tasks from questions, and the two golds of a calculation."""

from __future__ import annotations

import pytest

from millstream.errors import SettingsError
from millstream.graders.tatqa import executed, grade_tatqa, tatqa_task


@pytest.mark.parametrize(
    ("derivation", "gold", "percent", "value"),
    [
        ("(44.1-56.7)/56.7", "-22.22", True, (44.1 - 56.7) / 56.7 * 100),
        ("44.1-56.7", "-12.6", False, 44.1 - 56.7),
        ("$1,496.5 - 1,202.9", "293.6", False, 1496.5 - 1202.9),
        ("[(2.9+3.0)/2]", "2.95", False, 2.95),
        ("44.1-56.7", "-12.5", False, "-12.5"),
        ("1 / 0", "1", False, "1"),
        ("Net losses##Other", "2", False, "2"),
        ("", "4", False, "4"),
        ("__import__('os')", "4", False, "4"),
    ],
)
def test_a_derivation_is_executed_where_it_gives_the_gold(derivation, gold, percent, value):
    """Parsed, never run; the gold text stands where it gives another value or none."""
    assert executed(derivation, gold, percent=percent) == pytest.approx(value)


def test_a_question_becomes_a_task():
    """Percents count percents, several spans stand in the metadata."""
    task = tatqa_task(
        {
            "uid": "u",
            "question": "q",
            "answer": -22.22,
            "answer_type": "arithmetic",
            "scale": "percent",
            "derivation": "",
        }
    )
    assert (task.reference, task.metadata["unit"]) == ("-22.22", "percent")
    task = tatqa_task({"uid": "u", "question": "q", "answer": ["a", "b"], "answer_type": "multi-span", "scale": ""})
    assert (task.reference, task.metadata["answers"]) == ("a; b", ["a", "b"])
    with pytest.raises(SettingsError, match="no answer"):
        tatqa_task({"question": "q"})


def test_a_span_with_commas_is_one_span():
    """Only where several are asked for is a text cut."""
    gold = "Germany, Ghana, India"
    task = tatqa_task({"uid": "u", "question": "q", "answer": [gold], "answer_type": "span", "scale": ""})
    assert grade_tatqa(gold, task, [gold]).score == 1.0
    assert grade_tatqa("Germany, Ghana", task, [gold]).score == 0.0
