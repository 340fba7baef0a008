"""One run as a story, made from its trajectory and its grades."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from millstream.console.report_data import Story, StoryGrade, StoryStep
from millstream.events import MessageReceived, ModelResponded, ToolCall, ToolReturned, TrajectoryEnded
from millstream.grade import GradeGiven, Scored
from millstream.trajectory import Trajectory


def story(trajectory: Trajectory, grades: Sequence[GradeGiven], reward: float | None = None) -> Story:
    """The run in the order in which it happened; ``grades`` are those of its revision."""
    reference = trajectory.task.reference
    started = trajectory.started
    return Story(
        trajectory_id=trajectory.id,
        status=trajectory.status,
        question=trajectory.task.question or _first_message(trajectory),
        reference="" if reference is None else str(reference),
        answer=trajectory.final_answer or "",
        policy_version=started.policy_version if started else None,
        reward=reward,
        steps=tuple(step for event in trajectory.events for step in _steps(event)),
        grades=tuple(_grade(given) for given in sorted(grades, key=lambda g: (g.grader, g.attempt))),
    )


def _first_message(trajectory: Trajectory) -> str:
    return next((e.content for e in trajectory.events if isinstance(e, MessageReceived) and e.role == "user"), "")


def _steps(event: object) -> list[StoryStep]:
    if isinstance(event, MessageReceived):
        return [StoryStep(who="task", text=event.content)]
    if isinstance(event, ModelResponded):
        said = StoryStep(who="policy", text=event.text, thought=event.reasoning)
        calls = [StoryStep(who="policy", call=_call(call)) for call in event.tool_calls]
        return [said, *calls] if event.text or event.reasoning or not calls else calls
    if isinstance(event, ToolReturned):
        return [StoryStep(who="tool", text=event.error or event.output, failed=bool(event.error))]
    if isinstance(event, TrajectoryEnded):
        return [StoryStep(who="end", text=event.error or event.reason)]
    return []


def _call(call: ToolCall) -> str:
    if call.arguments is None:
        return f"{call.name}({call.arguments_raw})"
    inner = ", ".join(f"{key}={msgspec.json.encode(value).decode()}" for key, value in call.arguments.items())
    return f"{call.name}({inner})"


def _grade(given: GradeGiven) -> StoryGrade:
    grade = given.grade
    score = grade.score if isinstance(grade, Scored) else None
    return StoryGrade(grader=given.grader, status=type(grade).__name__.lower(), score=score, reason=grade.reason)
