"""What a run's calls of a model tell: each request tells the conversation again, each message is kept once.

A request continues the longest beginning that is known of it; what follows is new. Where an agent has rewritten its
history (a summary, a window that moved on), messages that it has had before are the old ones, but for those after the
last answer. An answer in a request that this agent was not seen to give is history: kept with the flag ``history``,
never trained. After a handoff the other agent's segment so begins with what it was given of the conversation.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from millstream import values
from millstream.capture import scope
from millstream.capture.calls import Calls, Open
from millstream.capture.scope import Acting
from millstream.codec import content_digest, digest
from millstream.dialects.openai_calls import Answered, Asked
from millstream.dialects.told import Message
from millstream.events import HISTORY, LogprobKind, ToolCall, Usage

if TYPE_CHECKING:
    from millstream.capture.recorder import Run

_TOOL = ("tool", "function")
_MOST_BODIES = 4


class Request(Struct, frozen=True):
    """A request that was told: what its answer is told with."""

    asked: Asked
    place: str
    acting: Acting | None = None


class Prefix(Struct, frozen=True):
    """The first bytes of a list of messages that were told before, and the place after them."""

    length: int
    place: str


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
        self._bodies: OrderedDict[int, tuple[str, str]] = OrderedDict()
        self._places: defaultdict[str, set[str]] = defaultdict(set)
        self._keys: defaultdict[str, set[str]] = defaultdict(set)
        self._given: set[str] = set()
        self._after: dict[str, str] = {}
        self._calls = Calls()
        self._ran: dict[str, tuple[Open, _Ran]] = {}

    @property
    def waiting(self) -> bool:
        """Whether a call has no result yet."""
        return self._calls.waiting

    def goes_on(self, head: bytes, listed: bytes) -> Prefix | None:
        """What of a request's list of messages, as JSON, an earlier request of this run had whole; ``head``: what
        stands before the list. An agent's next request mostly is its last one and some more: so much need not be read.
        """
        head = _headed(head, scope.acting_in(self._run))
        with self._lock:
            for length, (told, place) in reversed(self._bodies.items()):
                if (
                    length < len(listed)
                    and listed[length : length + 1] in b",]"
                    and told == _hash(head, listed[:length])
                ):
                    return Prefix(length, place)
        return None

    def depth(self, asked: Asked) -> int:
        """How many of a request's messages this run has told."""
        with self._lock:
            places = self._places_of(asked, [_key(message) for message in asked.messages])
            return self._known(places, _name(scope.acting_in(self._run)))

    def _places_of(self, asked: Asked, keys: list[str], place: str = "") -> list[str]:
        """For each message the hash of all up to it, and of what the request goes on with."""
        place = place or self._after.get(asked.previous) or self._after.get(asked.conversation) or ""
        return [place := digest(place, key) for key in keys] or [place]

    def _known(self, places: list[str], agent: str) -> int:
        return max((n for n, place in enumerate(places, 1) if place in self._places[agent]), default=0)

    def asked(self, asked: Asked, *, prefix: Prefix | None = None, head: bytes = b"", listed: bytes = b"") -> Request:
        """A request is on its way: tell what is new in it. Of one that `goes_on`, ``asked`` has what follows the
        ``prefix``; ``head`` and ``listed`` are remembered for the next one.
        """
        acting = scope.acting_in(self._run)
        with self._lock:
            keys = [_key(message) for message in asked.messages]
            places = self._places_of(asked, keys, prefix.place if prefix else "")
            known = self._known(places, _name(acting))
            if listed and (not keys or asked.messages[-1].get("role") != "assistant"):
                self._bodies[len(listed) - 1] = (_hash(_headed(head, acting), listed[:-1]), places[-1])
                if len(self._bodies) > _MOST_BODIES:
                    self._bodies.popitem(last=False)
            who = self._run.agent if acting is None else acting.agent
            self._first = who if self._first is None else self._first
            if who == (self._run.agent or self._first):
                self._run.offer(asked.tools)
            self._tell(asked.messages[known:], keys[known:], acting)
            self._places[_name(acting)].update(places)
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
            self._settle(self._whose(request.acting))
            place = request.place
            last = max(n for n, one in enumerate(answer.messages) if one.get("role") == "assistant")
            for number, message in enumerate(answer.messages):
                key = _key(message)
                place = digest(place, key)
                self._given.add(key)
                self._keys[_name(request.acting)].add(key)
                self._places[_name(request.acting)].add(place)
                if message.get("role") == "assistant":
                    final = answer if number == last else None
                    self._turn(request, message, final, logprob_kind, tuple(flags))
                else:
                    self._result(message, request.acting)
            for name in (answer.response_id, request.asked.conversation):
                if name and request.asked.api == "responses":
                    self._after[name] = place

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
            for kept in (self._places, self._keys, self._given, self._after, self._bodies, self._ran):
                kept.clear()
            self._calls = Calls()

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

    def _tell(self, messages: list[Message], keys: list[str], acting: Acting | None) -> None:
        spoken = [n for n, one in enumerate(messages, 1) if one.get("role") in ("assistant", *_TOOL)]
        told, known = spoken[-1] if spoken else 0, self._keys[_name(acting)]
        for number, (message, key) in enumerate(zip(messages, keys, strict=True)):
            role = message.get("role")
            if role in _TOOL:
                self._result(message, acting)
            elif key in known and (number < told or role == "system"):
                continue
            elif role == "assistant":
                self._history(message, acting, given=key in self._given)
            else:
                self._said(message, acting)
            known.add(key)

    def _said(self, message: Message, acting: Acting | None) -> None:
        text, _ = values.text_of(message.get("content"))
        role = values.word(message.get("role"))
        if not self._run.told_by_hand(role, text):
            agent = self._whose(acting)
            self._run.message(role, message.get("content"), name=values.word(message.get("name")), agent=agent)
            self._run.told_by_hand(role, text)

    def _history(self, message: Message, acting: Acting | None, *, given: bool) -> None:
        """An answer of an earlier run, or one ``given`` in this run by another agent: its calls are known."""
        agent = self._whose(acting)
        calls = list(_calls_of(message))
        if not given:
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
        made = [self._calls.asked(call, agent) for call in _calls_of(message)]
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

    def _result(self, message: Message, acting: Acting | None) -> None:
        told, name = values.word(message.get("tool_call_id")), values.word(message.get("name"))
        call, doubts = self._calls.answered(told, name)
        if (told and self._run.told_by_hand("tool", told)) or doubts == ("repeated_result",):
            return
        if call is None:
            agent = self._whose(acting)
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


def _name(acting: Acting | None) -> str:
    return "" if acting is None else acting.agent


def _headed(head: bytes, acting: Acting | None) -> bytes:
    return _name(acting).encode("utf-8", "replace") + b"\n" + head


def _hash(head: bytes, listed: bytes) -> str:
    return content_digest(head, listed)


def _calls_of(message: Message) -> tuple[ToolCall, ...]:
    found = message.get("tool_calls")
    if not isinstance(found, list) or not found:
        one = message.get("function_call")
        return values.tool_calls([{"function": one}] if isinstance(one, dict) else ())
    return values.tool_calls(found)


def _key(message: Message) -> str:
    """What two tellings of one message have in common: who says what, and which calls are asked or answered."""
    text, _ = values.text_of(message.get("content") or message.get("refusal"))
    parts = [values.word(message.get("role")), text, values.word(message.get("tool_call_id"))]
    asked = message.get("tool_calls")
    ids = [values.word(call.get("id")) if isinstance(call, dict) else "" for call in asked or ()]
    if not all(ids) or message.get("function_call"):
        ids = [f"{call.name} {call.arguments_raw or call.arguments!r}" for call in _calls_of(message)]
    return digest(*parts, *ids)
