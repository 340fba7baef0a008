"""The recorder: one run of an agent, told event by event.

Every call builds its event and queues it; nothing waits for the disk, and nothing raises. Events are
numbered by (producer, trajectory), so that assembly sees what is missing. The start is held back until
the policy first acts when the caller named no task: its id is a hash of the messages up to there.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Protocol, Self, get_args

from msgspec.structs import replace

from millstream.capture import values
from millstream.capture.guard import guarded
from millstream.capture.tasks import split_for, task_id
from millstream.codec import digest
from millstream.events import (
    AnyEvent,
    EndReason,
    EventId,
    FeedbackSource,
    LogprobKind,
    MessageReceived,
    ModelResponded,
    ToolReturned,
    TrajectoryEnded,
    TrajectoryId,
    TrajectoryStarted,
)

_ROLES = {"system": "system", "developer": "system", "user": "user", "human": "user", "agent": "agent"}
_LOGPROB_KINDS = get_args(LogprobKind)
_END_REASONS = get_args(EndReason)
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


class Run:
    """A run being recorded; a context manager, also an async one. Safe to share between threads."""

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
        if started.task.id:
            self._begin()

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

    def _record(
        self, kind: type[AnyEvent], size: int, *, agent: str | None = None, acts: bool = True, **fields: Any
    ) -> None:
        with self._lock:
            if self._ended:
                raise RuntimeError(f"run {self.id} has ended; record before end() or leaving the with block")
            if acts:
                self._begin()
            who = self._agent if agent is None else values.word(agent)
            event = kind(**self._stamp(), **self._envelope, agent=who, **fields)
            self._sink.put(event, _EVENT_BYTES + size)

    @guarded
    def message(self, role: str, content: Any, *, name: str = "", agent: str | None = None) -> None:
        """A message to the policy: ``system``, ``user`` or ``agent`` (another one). ``assistant`` is
        recorded as `model`, ``tool`` as `tool`; any other role as an agent of that name.
        """
        if role == "assistant":
            self.model(text=content, agent=agent)
            return
        if role in ("tool", "function"):
            self.tool(name=name, output=content, agent=agent)
            return
        text, flags = values.text_of(content)
        known = _ROLES.get(role, "agent")
        with self._lock:
            if self._started is not None:
                self._seen.append((known, text))
            self._record(
                MessageReceived,
                len(text),
                acts=False,
                role=known,
                content=text,
                name=values.word(name) or (role if role not in _ROLES else ""),
                flags=flags,
                agent=agent,
            )

    @guarded
    def model(  # noqa: PLR0913 - the fields of the event
        self,
        *,
        text: Any = "",
        tool_calls: Iterable[Any] | None = None,
        reasoning: str | None = "",
        token_ids: Any = None,
        logprobs: Any = None,
        prompt_token_ids: Any = None,
        logprob_kind: LogprobKind | None = None,
        temperature: float | None = None,
        top_p: float | None = None,
        top_k: int | None = None,
        usage: Any = None,
        finish_reason: str | None = "",
        model: str | None = "",
        response_id: str | None = "",
        agent: str | None = None,
    ) -> None:
        """The policy acted. ``prompt_token_ids`` is the whole prompt; log-probs are ``processed`` (of
        the distribution sampled from, at its temperature) or ``raw``.
        """
        words, flags = values.text_of(text)
        ids, prompt = values.token_ids(token_ids), values.token_ids(prompt_token_ids)
        found, doubts = values.usable_log_probs(ids, values.log_probs(logprobs))
        if found is not None and logprob_kind not in _LOGPROB_KINDS:
            found, doubts = None, ("logprob_kind_unknown",)
        thoughts = values.word(reasoning)
        self._record(
            ModelResponded,
            len(words) + len(thoughts) + 8 * (len(ids or ()) + len(prompt or ()) + len(found or ())),
            text=words,
            tool_calls=values.tool_calls(tool_calls),
            reasoning=thoughts,
            token_ids=ids,
            prompt_token_ids=prompt,
            logprobs=found,
            logprob_kind=logprob_kind if found is not None else None,
            temperature=values.number(temperature),
            top_p=values.number(top_p),
            top_k=None if top_k is None else int(top_k),
            usage=values.usage_of(usage),
            finish_reason=values.word(finish_reason),
            model=values.word(model),
            response_id=values.word(response_id),
            flags=flags + doubts,
            agent=agent,
        )

    @guarded
    def tool(
        self,
        *,
        call_id: str | None = "",
        name: str | None = "",
        output: Any = "",
        error: Any = "",
        duration_ns: int = 0,
        agent: str | None = None,
    ) -> None:
        """A tool answered the call ``call_id``; ``error`` (a text or an exception) is set when it failed."""
        text, flags = values.text_of(output)
        self._record(
            ToolReturned,
            len(text),
            call_id=values.word(call_id),
            name=values.word(name),
            output=text,
            error=error_text(error),
            duration_ns=int(duration_ns),
            flags=flags,
            agent=agent,
        )

    @guarded
    def feedback(
        self, value: float | None = None, *, source: FeedbackSource = "user", name: str = "", comment: str = ""
    ) -> None:
        """A judgement on this run; see `millstream.feedback`."""
        self._sink.feedback(self.id, value=value, source=source, name=name, comment=comment)

    @guarded
    def end(self, final_answer: Any = None, *, reason: EndReason = "done", error: Any = "") -> None:
        """The run is over: ``done``, or the policy hit a ``limit``, or it was ``cancelled``, or it did ``crash``."""
        if reason not in _END_REASONS:
            raise ValueError(f"end reason {reason!r}: use one of {', '.join(_END_REASONS)}")
        answer = None if final_answer is None else values.text_of(final_answer)[0]
        with self._lock:
            if self._ended:
                return
            self._begin()
            producer = self._sink.producer
            last = {**{who: n - 1 for who, n in self._seqs.items()}, producer: self._seqs.get(producer, 0)}
            size = len(answer or "")
            self._record(
                TrajectoryEnded, size, reason=reason, final_answer=answer, error=error_text(error), last_seq=last
            )
            self._ended = True

    def close(self) -> None:
        """End the run as ``done`` unless it has ended."""
        self.end()

    def begin(self) -> None:
        """Send the start now, though the policy has not acted yet."""
        guarded(Run._begin)(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is None:
            self.end()
        elif isinstance(error, asyncio.CancelledError | KeyboardInterrupt | GeneratorExit):
            self.end(reason="cancelled", error=error)
        else:
            self.end(reason="crash", error=error)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)


def error_text(error: Any) -> str:
    """An error as text: an exception with its type."""
    if isinstance(error, BaseException):
        return f"{type(error).__name__}: {error}"
    return values.text_of(error)[0] if error else ""
