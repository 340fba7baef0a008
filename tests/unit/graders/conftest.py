"""Trajectories made in a line, and child processes that are closed after each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from millstream.adapters.children import Child
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
from millstream.graders.loading import load
from millstream.graders.running import GraderSet
from millstream.settings import Graders
from millstream.trajectory import Trajectory

Make = Callable[..., Trajectory]


def make_run(
    *actions: Any,
    reference: str | float | None = None,
    answer: str | None = None,
    question: str = "what?",
    metadata: dict[str, Any] | None = None,
    tools: tuple[dict[str, Any], ...] = (),
    end: str = "done",
    **fields: Any,
) -> Trajectory:
    """A trajectory. An action is a text, or (tool, arguments, output) or (tool, arguments, output, error)."""
    identity = TrajectoryId(fields.pop("id", "t1"))

    def common(n: int) -> dict[str, Any]:
        return {"id": EventId(f"e{n}"), "trajectory_id": identity}

    task = Task(question=question, reference=reference, metadata=metadata or {})
    events: list[AnyEvent] = [
        TrajectoryStarted(**common(0), task=task, tools=tools),
        MessageReceived(**common(1), content=question),
    ]
    for number, action in enumerate(actions):
        if isinstance(action, str):
            events.append(ModelResponded(**common(len(events)), text=action))
            continue
        name, arguments, output, *error = action
        call = ToolCall(id=f"c{number}", name=name, arguments=arguments)
        if not isinstance(arguments, dict):
            call = ToolCall(id=f"c{number}", name=name, arguments_raw=str(arguments), malformed=True)
        events.append(ModelResponded(**common(len(events)), tool_calls=(call,)))
        if output is not None:
            failed = error[0] if error else ""
            events.append(ToolReturned(**common(len(events)), call_id=call.id, name=name, output=output, error=failed))
    events.append(TrajectoryEnded(**common(len(events)), reason=end, final_answer=answer))  # type: ignore[arg-type]
    return Trajectory(id=identity, events=tuple(events), content_hash="h1", **fields)


@pytest.fixture
def make() -> Make:
    """`make_run`."""
    return make_run


@pytest.fixture
def spawned() -> Iterator[list[Child]]:
    """Children made by a test; ended after it."""
    children: list[Child] = []
    yield children
    for child in children:
        child.close()


@pytest.fixture
def load_graders(tmp_path: Path, spawned: list[Child]) -> Callable[..., GraderSet]:
    """Write ``graders.py`` (and other files) and load it as settings would."""

    def loaded(source: str, others: dict[str, str] | None = None, **settings: Any) -> GraderSet:
        for name, text in {"graders.py": source, **(others or {})}.items():
            (tmp_path / name).write_text(text, encoding="utf-8")

        def spawn(module: str) -> Child:
            spawned.append(Child(module))
            return spawned[-1]

        return load(Graders(files=("graders.py",), **{"enabled": (), **settings}), tmp_path, spawn)

    return loaded
