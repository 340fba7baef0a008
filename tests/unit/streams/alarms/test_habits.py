"""Habits of a run, counted by hand."""

from __future__ import annotations

import pytest

from millstream.streams.facts import facts_of
from millstream.streams.habits import repetition


def habits(run):
    return facts_of(run, 1).habits


def test_calls_broken_and_repeated_are_counted(make_run):
    """Four calls: one of them can't be read, one is made twice."""
    calls = [("a", {"x": 1, "y": 2}), ("a", {"y": 2, "x": 1}), ("a", "{bad"), ("b", {})]
    found = habits(make_run("r", calls=calls))
    assert (found.calls, found.broken, found.repeated) == (4, 1, 1)


@pytest.mark.parametrize(
    ("answer", "calls", "asked"),
    [
        ("Shall I go on?", [], True),
        ("Shall I go on? ", [("read_file", {})], True),
        ("这样可以吗？", [], True),
        ("Done. Anything else?", [("edit_file", {})], False),
        ("Done.", [], False),
        ("", [], False),
    ],
)
def test_a_question_in_place_of_work(make_run, answer, calls, asked):
    """Ended in a question, and nothing in the world was changed."""
    assert habits(make_run("r", answer=answer, calls=calls)).asked is asked


def test_repetition_by_hand():
    """Eight words said twice: 13 rows of four, 8 of them distinct, so 5 in 13 are repeated."""
    words = "a b c d e f g h"
    assert repetition(words) == 0.0
    assert repetition(f"{words} {words}") == round(5 / 13, 3)
    assert repetition("no " * 1000) == round(1 - 1 / 997, 3)
    assert repetition("") == 0.0
