"""Figures over recorded runs: small enough to work out by hand, each with its denominator."""

from __future__ import annotations

import csv
import io

import msgspec
import pytest

from millstream.codec import encode_lines
from millstream.console.measures import figures
from millstream.console.measures_text import render, to_csv
from millstream.events import (
    MessageReceived,
    ModelResponded,
    Task,
    ToolCall,
    ToolReturned,
    TrajectoryEnded,
    TrajectoryStarted,
    Usage,
)
from millstream.graders.reward import Formula
from millstream.ports import Message
from millstream.recalls import NONE


@pytest.fixture
def measure(mill):
    def run(formula="correct", **more):
        return figures(mill.log, Formula(formula), NONE, **more)

    return run


def of(found, metric, **where):
    """The one figure of a metric."""
    (row,) = [r for r in found if r.metric == metric and all(getattr(r, k) == v for k, v in where.items())]
    return row


def play(mill, runs):
    """(name, answer, more) each, one group a task."""
    for name, answer, more in runs:
        mill.play(name, [answer], **{"task": name, "world": name, **more})


def test_success_counts_scores_and_bounds_the_rest(mill, measure):
    """3 right and 1 wrong of 4 scored, 1 failed: 75 % of 4; of all 5 from 60 % to 80 %."""
    play(mill, [(f"t{n}", answer, {}) for n, answer in enumerate(["1.0", "1.0", "1.0", "0.0", "broken"])])
    found = measure()
    row = of(found, "success")
    assert (row.value, row.n, row.of, row.worlds, row.epochs) == (0.75, 4, "scored runs", 4, "correct@1")
    assert row.low < 0.75 < row.high
    bounds = of(found, "success_bounds")
    assert (bounds.value, bounds.low, bounds.high) == (0.6, 0.6, 0.8)
    assert (bounds.n, bounds.of) == (5, "runs, 1 failed")


def test_accuracy_at_k_is_unbiased_and_over_tasks_that_can_tell(mill, measure):
    """Tasks of 4 attempts with 2 right and with 4 right, one of 1: @2 = (5/6 + 1)/2, ^2 = (1/6 + 1)/2 over 2."""
    mill.play("a", ["1.0", "0.0", "1.0", "0.0"], world="w1")
    mill.play("b", ["1.0", "1.0", "1.0", "1.0"], world="w2")
    mill.play("c", ["0.0"], world="w3")
    found = measure()
    assert of(found, "accuracy@1").value == pytest.approx((0.5 + 1 + 0) / 3)
    assert of(found, "accuracy@2").value == pytest.approx((5 / 6 + 1) / 2)
    assert of(found, "pass^2").value == pytest.approx((1 / 6 + 1) / 2)
    assert (of(found, "accuracy@2").n, of(found, "accuracy@1").n) == (2, 3)
    assert not [row for row in found if row.metric == "accuracy@8"]


def tooled(name, answer, cost, *, used=True):
    """A run of two calls, the second failing; the first one's result is used unless told."""
    common = {"trajectory_id": name, "producer": "sdk"}
    call = lambda n: ToolCall(id=f"{name}-c{n}", name="load", arguments={"page": n})  # noqa: E731
    text = f"It is {answer}{' of 640' if used else ''}."
    return [
        TrajectoryStarted(id=f"{name}-0", seq=0, task=Task(id=name, split_key=name), lineage="policy", **common),
        MessageReceived(id=f"{name}-1", seq=1, content="How much?", **common),
        ModelResponded(id=f"{name}-2", seq=2, tool_calls=(call(1),), usage=Usage(cost=cost), **common),
        ToolReturned(id=f"{name}-3", seq=3, call_id=f"{name}-c1", name="load", output="640", **common),
        ModelResponded(id=f"{name}-4", seq=4, tool_calls=(call(2),), **common),
        ToolReturned(id=f"{name}-5", seq=5, call_id=f"{name}-c2", name="load", error="no such page", **common),
        ModelResponded(id=f"{name}-6", seq=6, text=text, token_ids=(1, 2, 3), **common),
        TrajectoryEnded(id=f"{name}-7", seq=7, final_answer=answer, last_seq={"sdk": 7}, **common),
    ]


def test_tools_costs_and_depth(mill, measure):
    """Two runs that cost 2 and 4, one right: 6 a success; 1 of 4 calls useful, 2 of 4 failed; 6 tokens."""
    for sent in (tooled("a", "1.0", 2.0), tooled("b", "0.0", 4.0, used=False)):
        mill.log.append("telemetry", [Message("k", encode_lines(sent), {"dialect": "millstream"})])
    mill.run()
    found = measure()
    cost = of(found, "cost_per_success")
    assert (cost.value, cost.n, cost.of) == (6.0, 1, "successes, 2 runs paid for")
    assert of(found, "tokens_per_success").value == 6.0
    assert (of(found, "tool_efficiency").value, of(found, "tool_efficiency").n) == (0.25, 4)
    assert of(found, "tool_errors").value == 0.5
    assert (of(found, "reasoning_depth").value, of(found, "reasoning_depth").n) == (2.0, 1)


def test_without_a_success_a_cost_is_no_number(mill, measure):
    """Neither 0 nor infinity, which JSON has not; and depth of no success is none."""
    play(mill, [("a", "0.0", {})])
    found = measure()
    for metric in ("cost_per_success", "tokens_per_success", "reasoning_depth", "tool_efficiency"):
        assert of(found, metric).value is None
    msgspec.json.encode(found)


def test_by_version_family_and_time(mill, measure):
    """Each cell has its own figures, named by what it is of."""
    play(mill, [("a", "1.0", {"family": "sum"}), ("b", "0.0", {"family": "sum", "version": 2})])
    mill.clock.advance(86_400_000)
    play(mill, [("c", "1.0", {"family": "ratio"}), ("d", "1.0", {"family": "sum"})])
    found = measure(by=("family", "day"))
    cells = {(r.policy_version, r.family, r.period): r.value for r in found if r.metric == "success"}
    days = sorted({period for _, _, period in cells})
    assert len(days) == 2
    assert cells == {
        (1, "sum", days[0]): 1.0,
        (2, "sum", days[0]): 0.0,
        (1, "ratio", days[1]): 1.0,
        (1, "sum", days[1]): 1.0,
    }
    later = measure(span=(mill.log.now_ms() - 3_600_000, 0))
    assert of(later, "success").n == 2
    assert measure(split="report") == []


def test_epochs_never_meet_in_one_figure(mill, grader, measure):
    """Half the runs regraded: two cells, each with the epoch of its grades; as of before there was one."""
    play(mill, [("a", "1.0", {}), ("b", "0.0", {})])
    before = mill.log.now_ms()
    mill.clock.advance(10_000)
    work = mill.regrading(grader(2, mended=True))
    work.wanted = work.wanted[:1]
    work.append()
    assert {(r.epochs, r.value) for r in measure() if r.metric == "success"} == {("correct@1", 0.0), ("correct@2", 0.0)}
    (row,) = [r for r in measure(as_of_ms=before) if r.metric == "success"]
    assert (row.epochs, row.value, row.n) == ("correct@1", 0.5, 2)


def test_text_and_csv_say_the_same(mill, measure):
    """Every figure has a line in both, with its denominator."""
    play(mill, [("a", "1.0", {}), ("b", "broken", {})])
    found = measure()
    rows = list(csv.DictReader(io.StringIO(to_csv(found))))
    assert [(r["metric"], int(r["n"])) for r in rows] == [(f.metric, f.n) for f in found]
    assert "(graded by correct@1)" in render(found)
    assert "runs, 1 failed" in render(found)
    assert "millstream up" in render([])
