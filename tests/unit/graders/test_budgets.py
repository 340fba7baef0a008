"""Budgets of tokens, cost and time, with what a run recorded."""

from __future__ import annotations

import msgspec
import pytest

from millstream.errors import SettingsError
from millstream.events import ModelResponded, TrajectoryEnded, TrajectoryStarted, Usage
from millstream.grade import Abstained
from millstream.graders.builtin import builtin


def recorded(run, *, tokens=(), costs=(), seconds=None):
    """The run with the usage of its actions and the times of its ends."""
    usages = iter([Usage(output_tokens=t, cost=c) for t, c in zip(tokens, costs, strict=True)])

    def changed(event):
        if isinstance(event, ModelResponded) and tokens:
            return msgspec.structs.replace(event, usage=next(usages))
        if isinstance(event, TrajectoryStarted) and seconds is not None:
            return msgspec.structs.replace(event, time_ns=10**18)
        if isinstance(event, TrajectoryEnded) and seconds is not None:
            return msgspec.structs.replace(event, time_ns=10**18 + int(seconds * 1e9))
        return event

    return msgspec.structs.replace(run, events=tuple(map(changed, run.events)))


def test_tokens_and_cost_are_those_of_all_actions(make):
    """30 tokens of 20 are half over: 0.5; 0.3 of 0.4 is within."""
    run = recorded(make("a", "b", answer="b"), tokens=(10, 20), costs=(0.1, 0.2))
    assert builtin("budget", {"max_tokens": 30})(run).score == 1.0
    assert builtin("budget", {"max_tokens": 20})(run).score == pytest.approx(0.5)
    assert builtin("budget", {"max_tokens": 20, "hard": True})(run).score == 0.0
    assert builtin("cost", {"most": 0.4})(run).score == 1.0
    assert builtin("cost", {"most": 0.2})(run).score == pytest.approx(0.5)


def test_the_time_is_from_start_to_end(make):
    """Three seconds of two: 0.5. A clock that went back tells nothing."""
    run = recorded(make("a", answer="a"), seconds=3)
    assert builtin("latency", {"most_s": 3})(run).score == 1.0
    assert builtin("latency", {"most_s": 2})(run).score == pytest.approx(0.5)
    assert isinstance(builtin("latency", {"most_s": 2})(recorded(make("a"), seconds=-1)), Abstained)


def test_half_recorded_usage_is_not_guessed(make):
    """One action without tokens: the sum is not known."""
    run = recorded(make("a", "b"), tokens=(10, 0), costs=(0.1, 0.0))
    assert isinstance(builtin("budget", {"max_tokens": 100})(run), Abstained)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("budget", {"max_steps": -1}),
        ("cost", {"most": "1"}),
        ("latency", {"most_s": float("inf")}),
        ("cost", {"most": True}),
    ],
)
def test_a_budget_that_is_none_is_refused(name, options):
    """At the start, by name."""
    with pytest.raises(SettingsError, match=f"{name}: "):
        builtin(name, options)
