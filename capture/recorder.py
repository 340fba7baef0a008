"""The recorder: one run of an agent, told event by event.

Every call builds its event and queues it; nothing waits for the disk, and nothing raises.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import Token
from types import TracebackType
from typing import Any, Self, TypeVar, get_args

from millstream import values
from millstream.capture import scope
from millstream.capture.conversation import Conversation
from millstream.capture.guard import guarded, report
from millstream.capture.numbering import Numbered, Sink
from millstream.events import (
    EndReason,
    FeedbackSource,
    LogprobKind,
    MessageReceived,
    ModelResponded,
    ToolCall,
    ToolReturned,
    TrajectoryEnded,
    TrajectoryStarted,
    Usage,
)

_ROLES = {"system": "system", "developer": "system", "user": "user", "human": "user", "agent": "agent"}
_LOGPROB_KINDS = get_args(LogprobKind)
_END_REASONS = get_args(EndReason)
_MOST_BY_HAND = 10_000
_NO_FLAGS: tuple[str, ...] = ()
_NO_TEXT: tuple[str, tuple[str, ...]] = ("", _NO_FLAGS)
T = TypeVar("T")


class Run(Numbered):
    """A run being recorded; a context manager, also an async one. Safe to share between threads.

    Within its block it is the current run: wrapped clients and decorated functions record into it.
    """

    def __init__(
        self,
        sink: Sink,
        started: TrajectoryStarted,
        shares: tuple[float, float, float] = (0.8, 0.1, 0.1),
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        super().__init__(sink, started, shares, now_ns)
        self._entered: list[Token[scope.Scope | None]] = []
        self._by_hand: Counter[int] = Counter()
        self.conversation = Conversation(self, self._lock)
        """The messages that calls of a model have told of this run."""

    def told_by_hand(self, role: str, what: str) -> bool:
        """Whether `message` (or `tool`, by call id) told this; each telling is found once."""
        mark = hash((_ROLES.get(role, role), what))
        with self._lock:
            found = self._by_hand[mark] > 0
            self._by_hand[mark] -= 1
            if self._by_hand[mark] <= 0:
                del self._by_hand[mark]
        return found

    def _by_hand_told(self, role: str, what: str) -> None:
        with self._lock:
            if len(self._by_hand) < _MOST_BY_HAND:
                self._by_hand[hash((role, what))] += 1

    def begin(self) -> None:
        """Tell what was held back: the start, though the policy has not acted yet, and results of tools."""
        self._settled()
        super().begin()

    @guarded
    def _settled(self) -> None:
        self.conversation.settle()

    @guarded
    def message(self, role: str, content: Any, *, name: str = "", agent: str | None = None) -> None:
        """A message to the policy: ``system``, ``user`` or ``agent`` (another one). ``assistant`` is
        recorded as `model`, ``tool`` as `tool`; any other role as an agent of that name.
        """
        role = values.word(role)
        if role == "assistant":
            self.model(text=content, agent=agent)
            return
        if role in ("tool", "function"):
            self.tool(name=name, output=content, agent=agent)
            return
        odd = _Odd()
        text, flags = odd.read("content", values.text_of, content, _NO_TEXT)
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
                flags=(*flags, *odd.flags),
                agent=agent,
            )
            self._by_hand_told(known if role in _ROLES else role, text)

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
        lineage: str | None = "",
        policy_version: int | None = None,
        sampling: Mapping[str, Any] | None = None,
        flags: Iterable[str] = (),
    ) -> None:
        """The policy acted. ``prompt_token_ids`` is the whole prompt; log-probs are ``processed`` (of
        the distribution sampled from, at its temperature) or ``raw``. ``lineage`` and ``policy_version``:
        whose step it is, if not the run's. ``sampling``: the other settings of the call.
        """
        odd = _Odd()
        words, marks = odd.read("text", values.text_of, text, _NO_TEXT)
        ids: tuple[int, ...] | None = odd.read("token_ids", values.token_ids, token_ids, None)
        prompt: tuple[int, ...] | None = odd.read("prompt_token_ids", values.token_ids, prompt_token_ids, None)
        given: tuple[float, ...] | None = odd.read("logprobs", values.log_probs, logprobs, None)
        found, doubts = values.usable_log_probs(ids, given)
        if found is not None and logprob_kind not in _LOGPROB_KINDS:
            found, doubts = None, ("logprob_kind_unknown",)
        calls: tuple[ToolCall, ...] = odd.read("tool_calls", values.tool_calls, tool_calls, ())
        thoughts = values.word(reasoning)
        self._record(
            ModelResponded,
            len(words) + len(thoughts) + 8 * (len(ids or ()) + len(prompt or ()) + len(found or ())),
            text=words,
            tool_calls=calls,
            reasoning=thoughts,
            token_ids=ids,
            prompt_token_ids=prompt,
            logprobs=found,
            logprob_kind=logprob_kind if found is not None else None,
            temperature=values.number(temperature),
            top_p=values.number(top_p),
            top_k=odd.whole("top_k", top_k),
            usage=odd.read("usage", values.usage_of, usage, Usage()),
            finish_reason=values.word(finish_reason),
            model=values.word(model),
            response_id=values.word(response_id),
            lineage=values.word(lineage),
            policy_version=odd.whole("policy_version", policy_version),
            sampling=values.mapping(values.plain(sampling)) if sampling else {},
            flags=(*marks, *doubts, *odd.read("flags", _words, flags, _NO_FLAGS), *odd.flags),
            agent=agent,
        )
        if calls:
            self.conversation.asked_by_hand(calls)

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
        flags: Iterable[str] = (),
    ) -> None:
        """A tool answered the call ``call_id``; ``error`` (a text or an exception) is set when it failed."""
        odd = _Odd()
        text, marks = odd.read("output", values.text_of, output, _NO_TEXT)
        if call_id:
            self._by_hand_told("tool", values.word(call_id))
            self.conversation.answered_by_hand(values.word(call_id))
        self._record(
            ToolReturned,
            len(text),
            call_id=values.word(call_id),
            name=values.word(name),
            output=text,
            error=odd.read("error", error_text, error, "unreadable" if error else ""),
            duration_ns=odd.whole("duration_ns", duration_ns) or 0,
            flags=(*marks, *odd.read("flags", _words, flags, _NO_FLAGS), *odd.flags),
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
        odd = _Odd()
        answer = None if final_answer is None else odd.read("final_answer", values.text_of, final_answer, _NO_TEXT)[0]
        with self._lock:
            if self._ended:
                return
            self.conversation.settle()
            self._begin()
            self._record(
                TrajectoryEnded,
                len(answer or ""),
                reason=reason,
                final_answer=answer,
                error=odd.read("error", error_text, error, "unreadable"),
                last_seq=self._last_seq(),
                flags=tuple(odd.flags),
            )
            self._ended = True
            self.conversation.forget()
            self._by_hand.clear()

    def close(self) -> None:
        """End the run as ``done`` unless it has ended."""
        self.end()

    @contextmanager
    def as_agent(self, name: str, *, lineage: str = "", policy_version: int | None = None) -> Iterator[Self]:
        """A block, in any thread, in which this agent acts: a sub-agent, or the one that was handed the run.

        What is recorded within is its segment. ``lineage`` and ``policy_version``: its own policy, told on each step.
        """
        acting = None
        try:
            acting = scope.Acting(agent=str(name), lineage=str(lineage or ""), policy_version=policy_version)
        except Exception as error:  # noqa: BLE001 - the block runs whatever it is called
            report("Run.as_agent", error)
        with scope.entered(scope.Scope(self, acting)):
            yield self

    def __enter__(self) -> Self:
        self._entered.append(scope.enter(scope.Scope(self)))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._entered:
            scope.leave(self._entered.pop())
        if error is None:
            self.end()
        elif isinstance(error, asyncio.CancelledError | KeyboardInterrupt | GeneratorExit):
            self.end(reason="cancelled", error=error)
        else:
            self.end(reason="crash", error=error)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)


def error_text(error: Any) -> str:
    """An error as text: an exception with its type."""
    if isinstance(error, BaseException):
        return f"{type(error).__name__}: {error}"
    return values.text_of(error)[0] if error else ""


def _words(flags: Iterable[Any]) -> tuple[str, ...]:
    return tuple(map(values.word, flags))


class _Odd:
    """What of an event can't be read: it is left out and flagged, and the event is told all the same."""

    def __init__(self) -> None:
        self.flags: list[str] = []

    def read(self, name: str, read: Callable[[Any], T], value: Any, otherwise: T) -> T:
        """The value read, else ``otherwise`` and the flag ``NAME_unreadable``."""
        try:
            return read(value)
        except Exception as error:  # noqa: BLE001 - the agent's objects raise what they like
            report(f"reading {name}", error)
            self.flags.append(f"{name}_unreadable")
            return otherwise

    def whole(self, name: str, value: Any) -> int | None:
        """A whole number of 64 bits, or None; flagged when it is something else."""
        found = values.whole(value)
        if found is None and value is not None:
            self.flags.append(f"{name}_unreadable")
        return found
