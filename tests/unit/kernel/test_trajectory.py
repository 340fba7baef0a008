"""What is asked of a sealed run: whose steps it has, and which results belong to which calls."""

from __future__ import annotations

from millstream.events import (
    HISTORY,
    EventId,
    ModelResponded,
    ToolCall,
    ToolReturned,
    TrajectoryId,
)
from millstream.trajectory import CALL_FAILED, Trajectory


def run(*events):
    return Trajectory(id=TrajectoryId("t"), events=tuple(events))


def said(name, *calls, flags=()):
    made = tuple(ToolCall(id=call, name="f", arguments={}) for call in calls)
    return ModelResponded(id=EventId(name), trajectory_id=TrajectoryId("t"), text=name, tool_calls=made, flags=flags)


def result(call):
    return ToolReturned(id=EventId(f"r-{call}"), trajectory_id=TrajectoryId("t"), call_id=call, output="4")


def test_history_and_failed_calls_are_no_steps():
    """What an earlier run answered, and what never came whole, is kept and is not the policy's act here."""
    found = run(said("old", flags=(HISTORY,)), said("broken", flags=(CALL_FAILED,)), said("new"))
    assert [step.response.text for step in found.steps] == ["new"]
    assert found.final_answer == "new"
    assert len(found.events) == 3


def test_results_of_calls_in_the_history_are_no_orphans():
    """A result belongs to its call, whichever run asked for it; one that nobody asked for is an orphan."""
    found = run(said("old", "h", flags=(HISTORY,)), result("h"), said("new", "a"), result("a"), result("nobody"))
    assert [one.call_id for one in found.orphans] == ["nobody"]
    assert found.unanswered == ()
    assert [one.call_id for one in found.steps[0].results] == ["a"]
