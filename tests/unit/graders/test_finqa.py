"""FinQA's program language, without the quirks of its official script."""

from __future__ import annotations

import json

import pytest

from millstream.events import Task
from millstream.graders.builtin import builtin
from millstream.graders.finqa import execute, grade_program

TABLE = [["", "2015", "2014"], ["net (loss), total", "$ 1,200", "-5 ( 5 )"], ["bare", "(5)", "-"], ["empty"]]


@pytest.mark.parametrize(
    ("program", "value"),
    [
        ("add(29, 4), add(8, 2), divide(29, #0), divide(8, #1), subtract(#2, #3)", 0.07879),
        ("multiply(1,200, 50%)", 600.0),
        ("subtract(const_100, const_m1)", 101.0),
        ("exp(2, 10)", 1024.0),
        ("greater(5, 5)", "no"),
        ("greater(6, 5)", "yes"),
        ("table_sum(net (loss), total, none)", 1195.0),
        ("table_average(net (loss), total, none), add(#0, 1)", 598.5),
        ("table_max(net (loss), total, none)", 1200.0),
        ("table_min(net (loss), total, none)", -5.0),
        ("add(1, 2), EOF", 3.0),
    ],
)
def test_programs(program, value):
    """Worked by hand."""
    assert execute(program, TABLE).value == value


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("", "empty"),
        ("EOF", "empty"),
        ("add(1, 2", "no op"),
        ("multiply(1e308, 10)", "not finite"),
        ("add(nan, 1)", "no number"),
        ("divide(1, 0)", "zero"),
        ("exp(-8, 0.5)", "not real"),
        ("exp(10, 400)", "no value"),
        ("add(#0, 1)", "no earlier step"),
        ("greater(5, 3), add(#0, 1)", "yes or no"),
        ("add($5, 1)", "no number"),
        ("table_sum(bare, none)", "no number"),
        ("table_sum(empty, none)", "no cells"),
        ("table_sum(missing, none)", "no row"),
        ("add(1, 2), table_sum(#0, none)", "name of a row"),
        ("power(2, 3)", "unknown operation"),
        ("add(1, 2) add(3, 4)", "instead of ', '"),
        ("add(1, 2), " * 200 + "add(1, 2)", "more than"),
    ],
)
def test_g13_g14_what_cannot_be_executed_is_invalid_with_a_reason(program, why):
    """G13, G14: empty, cut, non-finite and impossible programs are invalid, and score 0 even for a gold `n/a`."""
    done = execute(program, TABLE)
    assert not done.valid
    assert why in done.reason
    assert grade_program(program, Task(reference="n/a", metadata={"table": TABLE})).score == 0.0


def test_the_grader_compares_at_five_decimals(make):
    """Execution accuracy has no tolerance beyond the rounding."""
    finqa = builtin("finqa")
    assert finqa(make(answer="divide(1, 3)", reference=0.33333)).score == 1.0
    assert finqa(make(answer="divide(1, 3)", reference=0.3334)).score == 0.0
    assert finqa(make(answer=None, reference=0.3)).label == "invalid"


def test_every_real_item_executes_to_its_answer(data):
    """All 50 programs give `exe_ans`."""
    items = json.loads((data / "finqa" / "finqa_50.json").read_bytes())
    assert [i["id"] for i in items if execute(i["qa"]["program"], i["table"]).value != i["qa"]["exe_ans"]] == []
    assert len(items) == 50
