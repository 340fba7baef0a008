"""The client of the SDK: it begins runs and takes feedback, and its sender brings both to the log."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_args

from millstream import settings, values
from millstream.capture.guard import guarded, report
from millstream.capture.loose import Loose
from millstream.capture.outlet import Counters
from millstream.capture.recorder import Run
from millstream.capture.sender import Sender
from millstream.capture.shared import Shared
from millstream.events import (
    NO_RUN,
    AnyEvent,
    EventId,
    FeedbackGiven,
    FeedbackSource,
    Task,
    TrajectoryId,
    TrajectoryStarted,
    new_id,
)
from millstream.ports import LogWriter
from millstream.tasks import tools_hash

_SOURCES = frozenset(get_args(FeedbackSource))
_SPLITS = frozenset({"train", "held_out", "report"})


class Client:
    """Records runs into a log, or into what a function opens. ``spool``: the folder for what the log does not take.

    Raises `SettingsError` for a bad ``[capture] redact``. One a process is enough. With a ``producer`` id and
    a clock (nanoseconds) of your own, the same runs are the same events, byte for byte; a producer id must
    then be used by one process only.
    """

    def __init__(
        self,
        log: LogWriter | Callable[[], LogWriter],
        capture: settings.Capture | None = None,
        spool: Path | None = None,
        *,
        producer: str = "",
        now_ns: Callable[[], int] = time.time_ns,
        shared: Shared | None = None,
    ) -> None:
        self._capture = capture or settings.Capture()
        self._now_ns = now_ns
        self._runs: weakref.WeakSet[Run] = weakref.WeakSet()
        self.loose = Loose(self)
        """Where calls of a model go that belong to no run."""
        self._sender = Sender(log, self._capture, spool, self._begin_runs, producer, shared)

    @property
    def producer(self) -> str:
        """This process's id in its events."""
        return self._sender.producer

    @property
    def counters(self) -> Counters:
        """What became of this process's events."""
        return self._sender.counters

    @property
    def redacted(self) -> dict[str, int]:
        """Secrets taken out, by pattern."""
        return dict(self._sender.edge.redactor.counts)

    def put(self, event: AnyEvent, size: int) -> bool:
        """Queue an event; False when there is no room."""
        return self._sender.put(event, size)

    def start_run(self, task: Any = None, **fields: Any) -> Run:
        """Begin a run; see `millstream.record` for the fields."""
        try:
            run = Run(self, started_event(task, fields), self._capture.shares, self._now_ns)
        except Exception as error:  # noqa: BLE001 - the agent goes on without what could not be understood
            report("start_run", error)
            run = Run(self, TrajectoryStarted(id=EventId(""), trajectory_id=TrajectoryId(new_id()), source="sdk"))
        self._runs.add(run)
        return run

    @guarded
    def feedback(  # noqa: PLR0913 - the fields of the event
        self,
        trajectory_id: str = "",
        *,
        value: float | None = None,
        source: FeedbackSource = "user",
        name: str = "",
        label: str = "",
        comment: str = "",
        response_id: str = "",
        valid_time_ns: int = 0,
        subject: str = "",
    ) -> None:
        """Record a judgement on a run, at any time and from any process; see `millstream.feedback`."""
        event = feedback_event(
            trajectory_id,
            value=value,
            source=source,
            name=name,
            label=label,
            comment=comment,
            response_id=response_id,
            valid_time_ns=valid_time_ns,
            subject=subject,
            producer=self.producer,
            time_ns=self._now_ns(),
        )
        self.put(event, 400 + len(event.comment))

    def flush(self, timeout: float = 5.0) -> bool:
        """Wait until the log has everything recorded so far; whether it has."""
        return self._sender.flush(timeout)

    def close(self, timeout: float = 5.0) -> bool:
        """Bring everything to the log or the spool and stop; whether nothing was left behind."""
        return self._sender.close(timeout)

    def _begin_runs(self) -> None:
        for run in list(self._runs):
            run.begin()


def feedback_event(  # noqa: PLR0913 - the fields of the event
    trajectory_id: str = "",
    *,
    value: float | None = None,
    source: FeedbackSource = "user",
    name: str = "",
    label: str = "",
    comment: str = "",
    response_id: str = "",
    valid_time_ns: int = 0,
    subject: str = "",
    producer: str = "",
    time_ns: int = 0,
) -> FeedbackGiven:
    """A judgement on a run; without its id on the run that tells the response. Raises ValueError where neither is
    named, or the source is none.
    """
    if source not in _SOURCES:
        raise ValueError(f"feedback source {source!r}: use one of {', '.join(sorted(_SOURCES))}")
    if not trajectory_id and not response_id:
        raise ValueError("feedback without a trajectory id: give the id of the run (run.id), or of a response of it")
    number = values.number(int(value) if isinstance(value, bool) else value)
    held = values.whole(valid_time_ns)
    if held is None or held < 0:
        raise ValueError("feedback holds at a time from 1970 to 2262, in nanoseconds since 1970 (0: now)")
    return FeedbackGiven(
        id=EventId(new_id()),
        trajectory_id=TrajectoryId(str(trajectory_id)) if trajectory_id else NO_RUN,
        producer=producer,
        time_ns=time_ns,
        subject=values.word(subject),
        source=source,
        name=values.word(name),
        value=number,
        label=values.word(label),
        comment=values.word(comment),
        response_id=values.word(response_id),
        valid_time_ns=held,
        flags=("non_finite",) if value is not None and number is None else (),
    )


def started_event(task: Any, fields: Mapping[str, Any]) -> TrajectoryStarted:
    """The start of a run from the fields of `millstream.record`. Raises ValueError or TypeError."""
    tools = tuple(values.mapping(values.plain(tool)) for tool in fields.get("tools") or ())
    split = fields.get("split")
    if split is not None and split not in _SPLITS:
        raise ValueError(f"split {split!r}: use one of {', '.join(sorted(_SPLITS))}, or none to have it decided")
    return TrajectoryStarted(
        id=EventId(""),
        trajectory_id=TrajectoryId(values.word(fields.get("trajectory_id")) or new_id()),
        task=values.task_of(task) if task is not None else Task(),
        lineage=values.word(fields.get("lineage")),
        policy_version=values.whole(fields.get("policy_version")),
        interface=values.interface_of(fields.get("interface"), tools, tools_hash(tools)),
        split=split,
        group=values.word(fields.get("group")),
        attempt=values.whole(fields.get("attempt")) or 0,
        group_size=values.whole(fields.get("group_size")) or 1,
        propensity=values.number(fields.get("propensity")),
        tools=tools,
        agent=values.word(fields.get("agent")),
        subject=values.word(fields.get("subject")),
        source="sdk",
    )
