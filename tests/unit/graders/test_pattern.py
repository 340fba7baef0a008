"""Regular expressions with a deadline."""

from __future__ import annotations

import time

import pytest

from millstream.errors import SettingsError
from millstream.grade import Failed
from millstream.graders.builtin import builtin


def test_a_pattern_that_an_answer_makes_hang_fails_in_time(make):
    """Catastrophic backtracking is cut off: Failed(timeout), never a stream that stands still."""
    began = time.process_time()
    grade = builtin("regex", {"pattern": "^(a|aa)+$"})(make("x", answer="a" * 60 + "b"))
    assert isinstance(grade, Failed)
    assert grade.kind == "timeout"
    assert time.process_time() - began < 5


def test_a_pattern_that_is_none_is_refused_at_the_start():
    """By name, with what is wrong."""
    with pytest.raises(SettingsError, match=r"graders.options.regex.*no regular expression"):
        builtin("regex", {"pattern": "("})
