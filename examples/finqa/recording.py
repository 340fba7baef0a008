"""A played run told to the SDK, event by event, as an agent in production would.

A well-formed action is a tool call; an answer is the closing text, with the final answer resolved to a
number; text that is no action is a malformed call that the tools answered with an error.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from millstream.capture.recorder import Run
from millstream.events import Interface, Split, Task, TaskId, ToolCall, Usage
from millstream.examples.finqa.episode import ARGUMENTS, TOOLS
from millstream.examples.finqa.playing import PlayedRun, PlayedTurn
from millstream.examples.finqa.tasks import FinqaTask, split_of, task_from_id

AGENT = "finqa"
Start = Callable[..., Run]
"""`millstream.record` of some client."""


def task_of(task: FinqaTask) -> Task:
    """The task as events carry it. The tools of the shortest right run are in ``metadata``."""
    return Task(
        id=TaskId(task.task_id),
        question=task.question,
        reference=task.reference,
        split_key=task.split_key,
        family=task.template,
        metadata={"minimal_tools": task.minimal_tools, "synthetic": True},
    )


class Served(Struct, frozen=True, kw_only=True):
    """Who played, and how: what every run of a batch has in common. ``group_size``: attempts a task."""

    lineage: str
    version: int
    temperature: float
    group_size: int = 1
    interface: Interface = Interface()


def record_run(start: Start, played: PlayedRun, served: Served, trajectory_id: str) -> None:
    """Tell one run from start to end."""
    task = task_from_id(played.task_id)
    split: Split = split_of(task.split_key)
    with start(
        task_of(task),
        policy_version=served.version,
        lineage=served.lineage,
        group=f"{played.task_id}@{served.version}",
        attempt=played.attempt,
        group_size=served.group_size,
        split=split,
        interface=served.interface,
        tools=TOOLS,
        agent=AGENT,
        propensity=1.0,
        trajectory_id=trajectory_id,
    ) as run:
        run.message("user", task.question)
        for number, turn in enumerate(played.turns):
            _record_turn(run, turn, number, served.temperature)
        run.end(final_answer=played.final_answer, reason="limit" if played.limit else "done")


def _record_turn(run: Run, turn: PlayedTurn, number: int, temperature: float) -> None:
    answers = turn.tool == "answer"
    call_id = f"call-{number}"
    calls = () if answers else (_call(turn, call_id),)
    run.model(
        text=turn.text if answers else "",
        tool_calls=calls,
        prompt_token_ids=turn.prompt_ids,
        token_ids=turn.token_ids,
        logprobs=turn.logprobs,
        logprob_kind="processed",
        temperature=temperature,
        usage=Usage(input_tokens=len(turn.prompt_ids), output_tokens=len(turn.token_ids)),
        finish_reason=turn.finish_reason,
    )
    if not answers and turn.observation is not None:
        failed = not turn.ok
        run.tool(
            call_id=call_id,
            name=turn.tool,
            output="" if failed else turn.observation,
            error=turn.observation if failed else "",
        )


def _call(turn: PlayedTurn, call_id: str) -> ToolCall:
    if not turn.tool:
        return ToolCall(id=call_id, arguments_raw=turn.text, malformed=True)
    return ToolCall(id=call_id, name=turn.tool, arguments={ARGUMENTS[turn.tool]: turn.argument})
