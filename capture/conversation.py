"""What a run's calls of a model tell: each request tells the conversation again, each message is kept once.

A request continues the longest beginning that is known of it; what follows is new. Where an agent has rewritten its
history (a summary, a window that moved on), messages that it has had before are the old ones, but for those after the
last answer. An answer in a request that this agent was not seen to give is history: kept with the flag ``history``,
never trained. After a handoff the other agent's segment so begins with what it was given of the conversation.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from millstream import values
from millstream.capture import scope
from millstream.capture.calls import Calls, Open
from millstream.capture.remembered import Prefix, Remembered, calls_of, key_of
from millstream.capture.scope import Acting
from millstream.codec import digest
from millstream.dialects.openai_calls import Answered, Asked
from millstream.dialects.told import Message
from millstream.events import HISTORY, LogprobKind, ToolCall, Usage

if TYPE_CHECKING:
    from millstream.capture.recorder import Run

_TOOL = ("tool", "function")


class Request(Struct, frozen=True):
    """A request that was told: what its answer is told with."""

    asked: Asked
    place: str
    acting: Acting | None = None


class _Ran(Struct, frozen=True):
    """A tool's result as the tool gave it, kept until the model is told it in the agent's words."""

    output: Any
    error: Any
    duration_ns: int


class Conversation:
    """The conversations of one run with its models. Safe to share between threads."""

    def __init__(self, run: Run, lock: threading.RLock) -> None:
        self._run, self._lock = run, lock
        self._first: str | None = None
        self._remembered = Remembered()
        self._calls = Calls()
        self._ran: dict[str, tuple[Open, _Ran]] = {}

    def goes_on(self, head: bytes, listed: bytes) -> Prefix | None:
        """What of a request's list of messages, as JSON, an earlier request of this run had whole; ``head``: what
        stands before the list. An agent's next request mostly is its last one and some more: so much need not be read.
        """
        with self._lock:
            return self._remembered.goes_on(self._whose(scope.acting_in(self._run)), head, listed)

    def depth(self, asked: Asked) -> int:
        """How many of a request's messages this run has told."""
        with self._lock:
            places = self._remembered.places_of(asked, [key_of(message) for message in asked.messages])
            return self._remembered.known(self._whose(scope.acting_in(self._run)), places)

    def asked(self, asked: Asked, *, prefix: Prefix | None = None, head: bytes = b"", listed: bytes = b"") -> Request:
        """A request is on its way: tell what is new in it. Of one that `goes_on`, ``asked`` has what follows the
        ``prefix``; ``head`` and ``listed`` are remembered for the next one.
        """
        acting = scope.acting_in(self._run)
        with self._lock:
            agent = self._whose(acting)
            keys = [key_of(message) for message in asked.messages]
            places = self._remembered.places_of(asked, keys, prefix.place if prefix else "")
            known = self._remembered.known(agent, places)
            self._first = agent if self._first is None else self._first
            if agent == (self._run.agent or self._first):
                self._run.offer(asked.tools)
            self._tell(asked.messages[known:], keys[known:], agent)
            closed = not keys or asked.messages[-1].get("role") != "assistant"
            self._remembered.asked(agent, places, head, listed if closed else b"")
            return Request(asked, places[-1], acting)

    def answered(
        self,
        request: Request,
        answer: Answered,
        *,
        logprob_kind: LogprobKind | None = None,
        flags: Iterable[str] = (),
    ) -> None:
        """Its answer, as far as it came."""
        with self._lock:
            agent, place = self._whose(request.acting), request.place
            self._settle(agent)
            last = max(n for n, one in enumerate(answer.messages) if one.get("role") == "assistant")
            for number, message in enumerate(answer.messages):
                key = key_of(message)
                place = digest(place, key)
                self._remembered.told(agent, key, place, given=True)
                if message.get("role") == "assistant":
                    final = answer if number == last else None
                    self._turn(request, message, final, logprob_kind, tuple(flags))
                else:
                    self._result(message, agent)
            if request.asked.api == "responses":
                self._remembered.ends(answer.response_id, place)
                self._remembered.ends(request.asked.conversation, place)

    def ran(
        self, name: str, arguments: Any, output: Any, *, error: Any = "", duration_ns: int = 0, call_id: str = ""
    ) -> None:
        """A tool ran. Its result is told in the words that the model is given, which the next request has."""
        with self._lock:
            call = self._calls.running(name, arguments, call_id)
            if call is None or call.by_hand or call.call.id in self._ran:
                told = call.call.id if call is not None and call.by_hand else call_id
                self._run.tool(call_id=told, name=name, output=output, error=error, duration_ns=duration_ns)
                return
            kept = output if isinstance(output, str) else values.plain(output)
            self._ran[call.call.id] = (call, _Ran(kept, error, duration_ns))

    def asked_by_hand(self, calls: Iterable[ToolCall]) -> None:
        """Calls that `Run.model` was told of: tools may run for them."""
        with self._lock:
            for call in calls:
                self._calls.asked_by_hand(call)

    def answered_by_hand(self, call_id: str) -> None:
        """A result that `Run.tool` was told of."""
        with self._lock:
            self._calls.answered_by_hand(call_id)

    def forget(self) -> None:
        """The run is over: let go of what was remembered of it."""
        with self._lock:
            self._remembered, self._calls = Remembered(), Calls()
            self._ran.clear()

    def _whose(self, acting: Acting | None) -> str:
        """The agent that is told: that of the request, whoever acts where its answer is read."""
        return self._run.agent if acting is None else acting.agent

    def settle(self) -> None:
        """Tell the results that no request has told."""
        with self._lock:
            self._settle("", everyone=True)

    def _settle(self, agent: str, *, everyone: bool = False) -> None:
        for call_id, (call, ran) in list(self._ran.items()):
            if everyone or call.agent == agent:
                del self._ran[call_id]
                self._calls.close(call)
                self._told_result(call, ran.output, ran)

    def _tell(self, messages: list[Message], keys: list[str], agent: str) -> None:
        spoken = [n for n, one in enumerate(messages, 1) if one.get("role") in ("assistant", *_TOOL)]
        answered = spoken[-1] if spoken else 0
        for number, (message, key) in enumerate(zip(messages, keys, strict=True)):
            role = message.get("role")
            if role in _TOOL:
                self._result(message, agent)
            elif self._remembered.had(agent, key) and (number < answered or role == "system"):
                continue
            elif role == "assistant":
                self._history(message, agent, given=self._remembered.was_given(key))
            else:
                self._said(message, agent)
            self._remembered.told(agent, key)

    def _said(self, message: Message, agent: str) -> None:
        text, _ = values.text_of(message.get("content"))
        role = values.word(message.get("role"))
        if not self._run.told_by_hand(role, text):
            self._run.message(role, message.get("content"), name=values.word(message.get("name")), agent=agent)
            self._run.told_by_hand(role, text)

    def _history(self, message: Message, agent: str, *, given: bool) -> None:
        """An answer of an earlier run, or one ``given`` in this run by another agent: its calls are known. Responses
        items tell several answers as one where nothing came between; of the agent's own it is no news.
        """
        calls = list(calls_of(message))
        askers = self._calls.askers(calls)
        if askers == {agent}:
            return
        if not given and None in askers:
            calls = [self._calls.asked(call, agent)[0] for call in calls]
        text = message.get("content") or message.get("refusal")
        self._run.model(text=text, tool_calls=calls, agent=agent, flags=(HISTORY,))

    def _turn(
        self,
        request: Request,
        message: Message,
        answer: Answered | None,
        kind: LogprobKind | None,
        flags: tuple[str, ...],
    ) -> None:
        asked, acting, agent = request.asked, request.acting or Acting(), self._whose(request.acting)
        made = [self._calls.asked(call, agent) for call in calls_of(message)]
        again = ("call_id_reused",) if any(reused for _, reused in made) else ()
        several = ("other_choices",) if answer and answer.choices > 1 else ()
        found = answer or Answered()
        self._run.model(
            text=message.get("content"),
            reasoning=message.get("reasoning"),
            tool_calls=[call for call, _ in made],
            token_ids=found.token_ids,
            prompt_token_ids=found.prompt_token_ids,
            logprobs=found.logprobs,
            logprob_kind=kind,
            temperature=asked.temperature,
            top_p=asked.top_p,
            top_k=asked.top_k,
            sampling=asked.sampling,
            usage=found.usage if answer else Usage(),
            finish_reason=found.finish_reason,
            model=found.model or asked.model,
            response_id=found.response_id,
            lineage=acting.lineage,
            policy_version=acting.policy_version,
            agent=agent,
            flags=(*again, *several, *flags),
        )

    def _result(self, message: Message, agent: str) -> None:
        told, name = values.word(message.get("tool_call_id")), values.word(message.get("name"))
        call, doubts = self._calls.answered(told, name)
        if (told and self._run.told_by_hand("tool", told)) or doubts == ("repeated_result",):
            return
        if call is None:
            self._run.tool(call_id=told, name=name, output=message.get("content"), agent=agent, flags=doubts)
            return
        _, ran = self._ran.pop(call.call.id, (call, None))
        self._told_result(call, message.get("content"), ran, message.get("error"))

    def _told_result(self, call: Open, output: Any, ran: _Ran | None, error: Any = "") -> None:
        duration = 0 if ran is None else ran.duration_ns
        why = (ran.error if ran is not None else "") or error
        self._run.tool(
            call_id=call.call.id,
            name=call.call.name,
            output=output,
            error=why,
            duration_ns=duration,
            agent=call.agent or self._run.agent,
        )
        self._run.told_by_hand("tool", call.call.id)
