"""Figures over many runs, by hand."""

from __future__ import annotations

import math

import pytest

from millstream.graders.metrics import (
    cost_of,
    cost_per_success,
    pass_at_k,
    pass_at_k_of,
    pass_hat_k,
    pass_hat_k_of,
    reasoning_depth,
    success_bounds,
    tool_efficiency,
    tool_errors,
)


def test_pass_at_k():
    """n=4, c=2, k=2: 1 − C(2,2)/C(4,2) = 5/6; n=4, c=0: 0; a task with one attempt tells nothing of k=2."""
    assert pass_at_k([(4, 2)], 2) == pytest.approx(5 / 6)
    assert pass_at_k([(4, 2), (4, 0), (1, 1)], 2) == pytest.approx(5 / 12)
    assert pass_at_k([(1, 1)], 2) is None
    assert pass_at_k([(8, 3)], 1) == pytest.approx(3 / 8)


def test_pass_hat_k():
    """n=4, c=2, k=2: C(2,2)/C(4,2) = 1/6."""
    assert pass_hat_k([(4, 2)], 2) == pytest.approx(1 / 6)
    assert pass_hat_k([(4, 4)], 4) == 1.0
    assert pass_hat_k([], 1) is None


@pytest.mark.parametrize(("tasks", "k"), [([(4, 5)], 1), ([(4, -1)], 1), ([(4, 2)], 0)])
def test_impossible_counts_are_refused(tasks, k):
    """A figure from them would mean nothing."""
    with pytest.raises(ValueError, match=r"successes|at least"):
        pass_at_k(tasks, k)


def test_more_attempts_than_there_are_is_not_identifiable():
    """With one run of a task only k = 1 can be told; over tasks such a one is left out."""
    assert pass_at_k_of(1, 1, 1) == 1.0
    with pytest.raises(ValueError, match="pass@4 needs at least 4 attempts"):
        pass_at_k_of(1, 1, 4)
    with pytest.raises(ValueError, match="needs at least 2"):
        pass_hat_k_of(1, 1, 2)


def test_what_has_no_score_is_bounded_and_not_guessed():
    """2 of 4 right and 1 without a score: from 2/5 to 3/5; of no run anything."""
    assert success_bounds(2, 4, 1) == (0.4, 0.6)
    assert success_bounds(2, 4, 0) == (0.5, 0.5)
    assert success_bounds(0, 0, 0) == (0.0, 1.0)


def test_tool_efficiency_is_a_ratio_of_sums():
    """Nothing called is no efficiency, neither 0 nor 1."""
    assert tool_efficiency(3, 4) == 0.75
    assert tool_efficiency(0, 0) is None


def test_reasoning_depth_is_the_longest_causal_chain(make):
    """Steps that use nothing of each other do not add up."""
    chain = make(("load", {"d": "x"}, "cost 640"), ("calc", {"e": "640/2"}, "#1=320"), "It is 320", answer="320")
    apart = make(("load", {"d": "x"}, "cost 640"), ("load", {"d": "y"}, "debt 77"), "640 and 77", answer="640")
    assert reasoning_depth(chain) == 3
    assert reasoning_depth(apart) == 2
    assert reasoning_depth(make()) == 0
    assert reasoning_depth(make("7")) == 1


def test_cost_per_success_counts_every_run():
    """Infinite without a success, never 0."""
    assert cost_per_success([1.0, 2.0, 3.0], 2) == 3.0
    assert cost_per_success([1.0], 0) == math.inf


def test_costs_and_tool_errors_of_a_run(make):
    """Errors and missing answers both count."""
    run = make(("a", {}, "ok"), ("b", {}, "", "boom"), ("c", {}, None))
    assert tool_errors(run) == (2, 3)
    assert cost_of(run) == 0.0
