"""Grades of single steps: beside the score, kept with it, never part of the reward."""

from __future__ import annotations

import msgspec
import pytest

import millstream as ms
from millstream.errors import GraderError
from millstream.grade import Failed, Grade
from millstream.graders.builtin import builtin


def test_builtins_say_which_step_and_what(make):
    """The second call repeats the first, the third can't be read, the fourth speaks a secret."""
    run = make(("look", {"q": 1}, "one"), ("look", {"q": 1}, "one"), ("look", "{bad", None), "AKIAABCDEFGH12345678")
    told = {name: [(s.step, s.label) for s in builtin(name)(run).steps] for name in ("format", "efficiency", "safety")}
    assert told["format"] == [(3, "malformed call")]
    assert (2, "repeated") in told["efficiency"]
    assert (3, "unanswered") in told["efficiency"]
    assert told["safety"] == [(4, "unsafe")]


def test_a_grader_of_ones_own_grades_steps_in_its_child(load_graders, make):
    """They come through the process whole; a number that is none fails the grade."""
    source = (
        "import millstream as ms\n"
        "@ms.grader\ndef mine(t):\n"
        "    bad = [n for n, s in enumerate(t.steps, 1) if not s.results]\n"
        "    return ms.score(0.5, steps=[ms.step(n, 'no result', 0.0, reason='r' * 9000) for n in bad])\n"
        "@ms.grader\ndef broken(t):\n    return ms.score(1.0, steps=[ms.step(0, 'x')])\n"
        "@ms.grader\ndef infinite(t):\n    return ms.score(1.0, steps=[ms.step(1, 'x', float('nan'))])\n"
    )
    graders = load_graders(source)
    grades = {g[0].grader.name: g[0].grade for g in graders.grade(make(("a", {}, "ok"), "said"))}
    (step,) = grades["mine"].steps
    assert (step.step, step.label, step.score, len(step.reason)) == (2, "no result", 0.0, 500)
    assert isinstance(grades["broken"], Failed)
    assert isinstance(grades["infinite"], Failed)


def test_steps_survive_the_log_and_cost_nothing_where_there_are_none():
    """Old grades read as before; a grade without steps is written as it was."""
    with_steps = ms.score(1.0, steps=[ms.step(1, "good")])
    assert msgspec.json.decode(msgspec.json.encode(with_steps), type=Grade) == with_steps
    assert b"steps" not in msgspec.json.encode(ms.score(1.0))
    with pytest.raises(GraderError, match="counts from 1"):
        ms.step(0, "x")
