"""Examples that a grader declares, and whether it holds to them: ``@ms.grader(examples=[ms.example(…)])``.

`millstream graders test FILE` runs them as the stream would, in a child process with a deadline.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from millstream.errors import SettingsError
from millstream.events import (
    AnyEvent,
    EventId,
    MessageReceived,
    ModelResponded,
    Task,
    ToolCall,
    ToolReturned,
    TrajectoryEnded,
    TrajectoryId,
    TrajectoryStarted,
)
from millstream.grade import Grade, Scored, first_line
from millstream.trajectory import Trajectory

TOLERANCE = 1e-9


class Example(Struct, frozen=True, kw_only=True):
    """A run, and the grade that a grader should give it: a status and, when it is scored, a score within
    `TOLERANCE` and a label where one is named.
    """

    run: Trajectory
    status: Literal["scored", "abstained", "failed"]
    score: float | None = None
    label: str = ""

    def fault(self, grade: Grade) -> str:
        """How a grade differs from what was expected; empty when it does not."""
        given = str(grade.__struct_config__.tag)
        if given != self.status:
            reason = first_line(getattr(grade, "reason", ""))
            return f"expected {self.status}, got {given}" + (f": {reason}" if reason else "")
        if not isinstance(grade, Scored):
            return ""
        if self.score is not None and abs(grade.score - self.score) > TOLERANCE:
            return f"expected {self.score:g}, got {grade.score:g}" + (f" ({grade.reason})" if grade.reason else "")
        if self.label and grade.label != self.label:
            return f"expected the label {self.label!r}, got {grade.label!r}"
        return ""


def example(
    *calls: Sequence[Any],
    answer: str | None = None,
    reference: str | float | None = None,
    question: str = "",
    metadata: Mapping[str, Any] | None = None,
    run: Trajectory | None = None,
    score: float | None = None,
    status: Literal["scored", "abstained", "failed"] = "scored",
    label: str = "",
) -> Example:
    """An example for ``@ms.grader(examples=[…])``. The run is made from its ``answer`` to a task with ``reference``,
    ``question`` and ``metadata``, after ``calls`` of tools: (name, arguments, output) or, when the tool failed,
    (name, arguments, output, error); or it is ``run``, whole. ``score`` is expected of a scored grade.

    Raises `SettingsError` when it expects nothing, or both a score and none.
    """
    if (status == "scored") != (score is not None):
        raise SettingsError("an example expects a score, or another status: ms.example(…, score=1.0)")
    made = run or _run(calls, answer, Task(reference=reference, question=question, metadata=dict(metadata or {})))
    return Example(run=made, status=status, score=score, label=label)


def _run(calls: Sequence[Sequence[Any]], answer: str | None, task: Task) -> Trajectory:
    identity = TrajectoryId("example")
    events: list[AnyEvent] = []

    def common() -> dict[str, Any]:
        return {"id": EventId(f"example-{len(events)}"), "trajectory_id": identity}

    events.append(TrajectoryStarted(**common(), task=task))
    if task.question:
        events.append(MessageReceived(**common(), content=task.question))
    for number, (name, arguments, output, *error) in enumerate(calls):
        call = ToolCall(id=f"call-{number}", name=name, arguments=dict(arguments))
        events.append(ModelResponded(**common(), tool_calls=(call,)))
        told = {"output": output, "error": error[0] if error else ""}
        events.append(ToolReturned(**common(), call_id=call.id, name=name, **told))
    if answer is not None:
        events.append(ModelResponded(**common(), text=answer))
    events.append(TrajectoryEnded(**common(), final_answer=answer))
    return Trajectory(id=identity, events=tuple(events), content_hash="example")
