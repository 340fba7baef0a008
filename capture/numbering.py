"""The numbering of a run's events, and when its start is sent.

Events are numbered by (producer, trajectory), so that assembly sees what is missing. The start is held
back until the policy first acts when the caller named no task, whose id is a hash of the messages up to
there, or no tools, which the first request to a model may tell.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from msgspec.structs import replace

from millstream import values
from millstream.capture import scope
from millstream.capture.guard import guarded
from millstream.codec import digest
from millstream.events import AnyEvent, EventId, FeedbackSource, ModelResponded, TrajectoryId, TrajectoryStarted
from millstream.tasks import split_for, task_id, tools_hash

_EVENT_BYTES = 400
"""About what an event without its texts weighs in the queue."""


class Sink(Protocol):
    """Where a run's events go."""

    @property
    def producer(self) -> str:
        """Who is telling: another one after a fork."""
        ...

    def put(self, event: AnyEvent, size: int) -> bool:
        """Take an event; False when there is no room."""
        ...

    def feedback(
        self, trajectory_id: str, *, value: float | None, source: FeedbackSource, name: str, comment: str
    ) -> None:
        """Take a judgement on a run."""
        ...


class Numbered:
    """A run as far as its events' envelopes and its start go. Safe to share between threads."""

    def __init__(
        self,
        sink: Sink,
        started: TrajectoryStarted,
        shares: tuple[float, float, float] = (0.8, 0.1, 0.1),
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.id: TrajectoryId = started.trajectory_id
        self._sink, self._shares, self._now_ns = sink, shares, now_ns
        self._lock = threading.RLock()
        self._seqs: dict[str, int] = {}
        self._seen: list[tuple[str, str]] = []
        self._ended = False
        self._envelope: dict[str, Any] = {"trajectory_id": started.trajectory_id, "subject": started.subject}
        self._agent = started.agent
        self._started: TrajectoryStarted | None = replace(started, **self._stamp())
        if started.task.id and started.tools:
            self._begin()

    @property
    def agent(self) -> str:
        """The name of the run's own agent, '' if it has none."""
        return self._agent

    def _stamp(self) -> dict[str, Any]:
        """The producer, its next number in this run, the id that follows from both, and the time."""
        producer = self._sink.producer
        seq = self._seqs.get(producer, 0)
        self._seqs[producer] = seq + 1
        event_id = EventId(digest("event", producer, self.id, seq))
        return {"id": event_id, "producer": producer, "seq": seq, "time_ns": self._now_ns()}

    def _begin(self) -> None:
        """Send the start, with the task's id and its split decided."""
        with self._lock:
            started, self._started = self._started, None
            if started is None:
                return
            task = started.task
            if not task.id:
                seen = self._seen or [("user", task.question)]
                corpus = values.word(task.metadata.get("corpus_version"))
                task = replace(task, id=task_id(seen, started.interface, corpus))
            split = started.split or split_for(task, self._shares)
            self._sink.put(replace(started, task=task, split=split), _EVENT_BYTES)

    def offer(self, tools: Sequence[Any]) -> None:
        """The tools that the policy may call, unless the start told some or has been sent."""
        with self._lock:
            started = self._started
            if started is not None and not started.tools and tools:
                plain = tuple(values.mapping(values.plain(tool)) for tool in tools)
                interface = values.interface_of(started.interface, plain, tools_hash(plain))
                self._started = replace(started, tools=plain, interface=interface)

    def _record(
        self, kind: type[AnyEvent], size: int, *, agent: str | None = None, acts: bool = True, **fields: Any
    ) -> None:
        acting = scope.acting_in(self)
        if agent is None and acting is not None:
            agent = acting.agent
            if kind is ModelResponded and acting.policy_version is not None and fields.get("policy_version") is None:
                fields |= {"lineage": acting.lineage, "policy_version": acting.policy_version}
        with self._lock:
            if self._ended:
                raise RuntimeError(f"run {self.id} has ended; record before end() or leaving the with block")
            if acts:
                self._begin()
            who = self._agent if agent is None else values.word(agent)
            event = kind(**self._stamp(), **self._envelope, agent=who, **fields)
            self._sink.put(event, _EVENT_BYTES + size)

    def _last_seq(self) -> dict[str, int]:
        """Each producer's last number when the next event of this process is the last one."""
        producer = self._sink.producer
        return {**{who: n - 1 for who, n in self._seqs.items()}, producer: self._seqs.get(producer, 0)}

    def begin(self) -> None:
        """Send the start now, though the policy has not acted yet."""
        guarded(Numbered._begin)(self)
