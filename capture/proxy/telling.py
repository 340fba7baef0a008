"""A call as events of its run: what its request tells that was not told before, and what the model answered.

The events are linked (`millstream.events.Link`) and named by what they say, as those of spans are: told twice, by a
proxy that was started anew or by another one, they are one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from millstream import values
from millstream.capture.client import started_event
from millstream.capture.proxy.conversations import Run
from millstream.capture.proxy.labels import Labels
from millstream.capture.proxy.naming import TOOL_ROLES, calls_of, name_of, text_of
from millstream.codec import digest
from millstream.dialects.openai_calls import Answered, Asked
from millstream.dialects.told import Message
from millstream.events import (
    HISTORY,
    AnyEvent,
    EventId,
    Link,
    LogprobKind,
    MessageReceived,
    ModelResponded,
    Task,
    ToolCall,
    ToolReturned,
    TrajectoryEnded,
    TrajectoryId,
    TrajectoryStarted,
    Usage,
)
from millstream.tasks import split_for, task_id
from millstream.trajectory import CALL_FAILED

_ROLES: Final = {"system": "system", "developer": "system", "user": "user"}
_BYTES_A_TOKEN: Final = 4
Shares = tuple[float, float, float]


class Call(Struct, frozen=True, kw_only=True):
    """A call that is over. ``id`` is unique; ``failure``: why there is no whole answer, '' when there is one, and
    ``trouble`` the words of it; times are nanoseconds since 1970.
    """

    id: str
    asked: Asked
    answered: Answered
    labels: Labels
    began_ns: int
    ended_ns: int
    failure: str = ""
    trouble: str = ""
    logprob_kind: LogprobKind | None = None


class Telling:
    """One call's telling of its run. ``whole``: the request tells the conversation from its beginning."""

    def __init__(self, run: Run, call: Call, shares: Shares, *, whole: bool) -> None:
        self._run, self._call, self._shares = run, call, shares
        self._times: dict[str, int] = {} if whole else dict(run.times)
        self._before = "" if whole else run.last
        self._open: list[ToolCall] = []

    def all(self) -> Iterator[AnyEvent]:
        """The events that were not told before, in order."""
        run, call = self._run, self._call
        if not run.begun:
            run.begun = True
            yield self._started()
        for message in call.asked.messages:
            if (event := self._message(message)) is not None:
                yield event
        yield from self._failure() if call.failure else self._answer()
        run.last = self._before
        if call.labels.end is not None:
            yield ended(run, call.ended_ns, call.labels.end)

    def _envelope(self, key: str, rank: int, time_ns: int, alias: str = "") -> dict[str, Any]:
        link = Link(key=key, after=self._before, finality=rank, alias=alias)
        self._before = alias or key
        agent = self._call.labels.agent
        return {**_identity(self._run.id, key, rank, time_ns), "agent": agent, "link": link}

    def _numbered(self, name: str) -> tuple[str, bool]:
        """The name of a message with how often it was said, and whether it is news."""
        times = self._times[name] = self._times.get(name, 0) + 1
        known = self._run.times.get(name, 0) >= times
        self._run.times[name] = max(self._run.times.get(name, 0), times)
        return f"{name}:{times}", not known

    def _started(self) -> TrajectoryStarted:
        asked, labels = self._call.asked, self._call.labels
        opening = list(_opening(asked.messages))
        question = next((text for role, text in opening if role == "user"), "")
        fields = {**labels.run, "trajectory_id": self._run.id, "agent": labels.agent, "tools": asked.tools}
        started = started_event(Task(**{"question": question, "family": "proxy", **labels.task}), fields)
        task = started.task
        if not task.id:
            task = replace(task, id=task_id(opening or [("user", self._run.id)], started.interface))
        split = started.split or split_for(task, self._shares)
        identity = _identity(self._run.id, "start", -self._call.began_ns, self._call.began_ns)
        link = Link(key="start", finality=-self._call.began_ns)
        return replace(started, **identity, task=task, split=split, source="proxy", link=link, flags=self._run.flags)

    def _message(self, message: Message) -> AnyEvent | None:
        """The event of a message of the request; None: it was told before."""
        key, news = self._numbered(name_of(message))
        role = values.word(message.get("role"))
        made: AnyEvent
        if role == "assistant":
            calls = self._calls(message)
            self._open += calls
            if not news:
                self._before = key
                return None
            envelope = self._envelope(key, -self._call.began_ns, self._call.began_ns)
            made = ModelResponded(**envelope, text=text_of(message), tool_calls=calls, flags=(HISTORY,))
        elif role in TOOL_ROLES:
            made = self._result(message, key, news=news)
        else:
            made = self._received(message, role, key, news=news)
        return made if news else None

    def _received(self, message: Message, role: str, key: str, *, news: bool) -> MessageReceived:
        content, flags = values.text_of(message.get("content"))
        name = values.word(message.get("name")) or ("" if role in _ROLES else role)
        known: Any = _ROLES.get(role, "agent")
        envelope = self._envelope(key, -self._call.began_ns, self._call.began_ns)
        if news:
            self._run.reason, self._run.error = "done", ""
        return MessageReceived(**envelope, role=known, content=content, name=name, flags=flags)

    def _result(self, message: Message, key: str, *, news: bool) -> ToolReturned:
        told_id, name = values.word(message.get("tool_call_id")), values.word(message.get("name"))
        call = next((one for one in self._open if _answers(one, told_id, name)), None)
        if call is not None:
            self._open.remove(call)
        call_id = call.id if call is not None else told_id
        if news:
            self._run.unanswered.discard(call_id)
        output, flags = values.text_of(message.get("content"))
        return ToolReturned(
            **self._envelope(key, -self._call.began_ns, self._call.began_ns),
            call_id=call_id,
            name=name or (call.name if call is not None else ""),
            output=output,
            error=values.text_of(message.get("error"))[0],
            flags=flags,
        )

    def _calls(self, message: Message) -> tuple[ToolCall, ...]:
        """The calls of a turn, each with an id of its own: servers use one twice, or none."""
        return tuple(self._own_id(call) for call in calls_of(message))

    def _own_id(self, call: ToolCall) -> ToolCall:
        told = call.id or f"call-{call.name}"
        number, _ = self._numbered(f"id:{told}")
        times = number.rpartition(":")[2]
        return call if call.id and times == "1" else replace(call, id=told if times == "1" else f"{told}#{times}")

    def _answer(self) -> Iterator[AnyEvent]:
        turns = self._call.answered.messages
        last = max((n for n, turn in enumerate(turns) if turn.get("role") == "assistant"), default=-1)
        for number, turn in enumerate(turns):
            if turn.get("role") != "assistant":
                if (event := self._message(turn)) is not None:
                    yield event
                continue
            alias, _ = self._numbered(name_of(turn))
            calls = self._calls(turn)
            self._open += calls
            self._run.unanswered |= {call.id for call in calls}
            envelope = self._envelope(f"{self._call.id}/out/{number}", 1, self._call.ended_ns, alias)
            made = ModelResponded(
                **envelope,
                text=text_of(turn),
                reasoning=values.word(turn.get("reasoning_content") or turn.get("reasoning")),
                tool_calls=calls,
                flags=values.text_of(turn.get("content"))[1],
            )
            yield self._settled(made) if number == last else self._sampled(made)
        said = [text_of(turn) for turn in turns if turn.get("role") == "assistant" and not turn.get("tool_calls")]
        self._run.answer, self._run.reason, self._run.error = next(filter(None, reversed(said)), ""), "done", ""

    def _failure(self) -> Iterator[AnyEvent]:
        """A call without a whole answer: what came of it is kept, and is no action of the policy."""
        call = self._call
        said = "\n".join(filter(None, (text_of(turn) for turn in call.answered.messages)))
        before = self._before
        envelope = self._envelope(f"{call.id}/out/0", 1, call.ended_ns)
        self._before = before
        left = call.failure == "client_left"
        made = ModelResponded(**envelope, text=said, flags=(CALL_FAILED, call.failure))
        yield replace(self._settled(made), finish_reason="cancelled" if left else "error")
        self._run.reason, self._run.error = "cancelled" if left else "crash", call.trouble or call.failure

    def _sampled(self, made: ModelResponded) -> ModelResponded:
        asked, answered = self._call.asked, self._call.answered
        model, shape = answered.model or asked.model, (asked.temperature, asked.top_p, asked.top_k)
        told = replace(made, model=model, temperature=shape[0], top_p=shape[1], top_k=shape[2])
        return replace(told, sampling=asked.sampling)

    def _settled(self, made: ModelResponded) -> ModelResponded:
        """The last turn of an answer, with what is told of the whole."""
        answered, call = self._call.answered, self._call
        ids, prompt = _ids(answered.token_ids), _ids(answered.prompt_token_ids)
        found, doubts = values.usable_log_probs(ids, values.log_probs(answered.logprobs))
        if found is not None and call.logprob_kind is None:
            found, doubts = None, ("logprob_kind_unknown",)
        usage, guess = self._usage(made)
        more = ("other_choices",) if answered.choices > 1 else ()
        return replace(
            self._sampled(made),
            usage=usage,
            finish_reason=answered.finish_reason,
            response_id=answered.response_id,
            token_ids=ids,
            prompt_token_ids=prompt,
            logprobs=found,
            logprob_kind=call.logprob_kind if found is not None else None,
            flags=(*made.flags, *doubts, *guess, *more),
        )

    def _usage(self, made: ModelResponded) -> tuple[Usage, tuple[str, ...]]:
        """What the answer says; else the tokens that were counted, else a guess from the length of the texts."""
        told, answered = self._call.answered.usage, self._call.answered
        if told.input_tokens or told.output_tokens or (self._call.failure and not made.text):
            return told, ()
        said = (
            made.text + made.reasoning + "".join(f"{c.name}{c.arguments or c.arguments_raw}" for c in made.tool_calls)
        )
        output = len(answered.token_ids or answered.logprobs or ()) or _guess(said)
        asked = len(answered.prompt_token_ids or ()) or _guess("".join(map(text_of, self._call.asked.messages)))
        return replace(told, input_tokens=asked, output_tokens=output), ("usage_estimated",)


def ended(run: Run, time_ns: int, reason: Any = None) -> TrajectoryEnded:
    """The end of a run: as the caller says, else as its last call left it."""
    return TrajectoryEnded(
        **_identity(run.id, "end", 1, time_ns),
        link=Link(key="end", finality=1),
        reason=reason or run.reason,
        final_answer=run.answer or None,
        error="" if reason else run.error,
    )


def _identity(run: str, key: str, rank: int, time_ns: int) -> dict[str, Any]:
    return {"id": EventId(digest("proxy", run, key, rank)), "trajectory_id": TrajectoryId(run), "time_ns": time_ns}


def _opening(messages: list[Message]) -> Iterator[tuple[str, str]]:
    """The messages up to the first of the user's."""
    for message in messages:
        role = values.word(message.get("role"))
        yield role, text_of(message)
        if role == "user":
            return


def _answers(call: ToolCall, told_id: str, name: str) -> bool:
    return told_id in (call.id, call.id.rpartition("#")[0]) if told_id else name in ("", call.name)


def _ids(told: Any) -> tuple[int, ...] | None:
    if not isinstance(told, list) or not all(isinstance(one, int) and 0 <= one < 2**31 for one in told):
        return None
    return tuple(told)


def _guess(text: str) -> int:
    return -(-len(text.encode("utf-8", "replace")) // _BYTES_A_TOKEN) if text else 0
