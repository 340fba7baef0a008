"""A recorder that keeps its events: runs that must not enter the log (an exam's) are told like any other."""

from __future__ import annotations

from typing import Any

from millstream.capture.client import started_event
from millstream.capture.recorder import Run
from millstream.events import AnyEvent, FeedbackSource, new_id


class MemoryRecorder:
    """Begins runs whose events it keeps until they are taken."""

    def __init__(self) -> None:
        self.producer = new_id()
        self._events: list[AnyEvent] = []

    def start_run(self, task: Any = None, **fields: Any) -> Run:
        """Begin a run; the fields are those of `millstream.record`."""
        return Run(self, started_event(task, fields))

    def put(self, event: AnyEvent, size: int) -> bool:
        """Keep an event."""
        del size
        self._events.append(event)
        return True

    def feedback(
        self, trajectory_id: str, *, value: float | None, source: FeedbackSource, name: str, comment: str
    ) -> None:
        """An exam takes no feedback: its gold measurement is the grader's alone."""
        del trajectory_id, value, source, name, comment

    def take(self) -> list[AnyEvent]:
        """The events since the last call, in order."""
        taken, self._events = self._events, []
        return taken
