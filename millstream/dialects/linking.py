"""What a span tells, as linked events. Pure, a span at a time: in whatever order the spans of a trace are read, the
same events remain.

Every call of a model tells the whole conversation again. A message is therefore named by what it says and how often
that was said before (``said:…``), a call by its id (``calls:…``, ``call:…``): all tellings are versions of one event,
and the earliest that knows its predecessor stands (``finality`` is minus its time). What a call gave is named by its
span (``…/out``), outranks every telling of it, and its link's ``alias`` is the name under which it is told again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from millstream import values
from millstream.codec import digest
from millstream.dialects import genai
from millstream.dialects.cuts import measured
from millstream.dialects.messages import decoded, result_text
from millstream.dialects.spans import Span
from millstream.dialects.starting import Shares, ended, started
from millstream.dialects.told import Message, Told, number, text
from millstream.events import (
    NO_RUN,
    AnyEvent,
    EventId,
    FeedbackGiven,
    Link,
    MessageReceived,
    ModelResponded,
    ToolCall,
    ToolReturned,
    TrajectoryId,
)

HEARSAY: Final = 2**62
"""How much less a telling ranks that does not know what came before."""
SILENT: Final = -(2**63) + 1
"""The rank of a tool's span that does not tell what the tool gave."""
OURS: Final = "millstream.graders"
"""The scope of the evaluations that we export: they are no news to us."""
NO_CONTENT: Final = "no_content"
_ROLES: Final = {"system": "system", "developer": "system", "user": "user"}


def events(span: Span, told: Told, shares: Shares) -> list[AnyEvent]:
    """The events of a span; empty for one that makes no step."""
    if told.kind == "other":
        return []
    told_events = _Telling(span, told).all()
    return [*told_events, *started(span, told, shares), *ended(span, told)]


def evaluation(span: Span) -> list[AnyEvent]:
    """The feedback of an evaluation's event; nothing when the evaluator failed, or was one of our graders."""
    found = span.attributes
    value, label = number(found.get("gen_ai.evaluation.score.value")), text(found, "gen_ai.evaluation.score.label")
    if span.name != genai.EVALUATION or (value is None and not label) or span.scope == OURS:
        return []
    name = text(found, "gen_ai.evaluation.name")
    response = text(found, "gen_ai.response.id")
    told = (response,) if span.trace_id == NO_RUN else (span.span_id,)
    return [
        FeedbackGiven(
            id=EventId(digest("evaluation", span.trace_id, *told, name, span.start_ns)),
            trajectory_id=TrajectoryId(span.trace_id),
            time_ns=span.start_ns,
            source="environment",
            name=name,
            value=value,
            label=label,
            comment=text(found, "gen_ai.evaluation.explanation"),
            response_id=response,
        )
    ]


class _Telling:
    """One span's telling of a conversation: each message after the one before it."""

    def __init__(self, span: Span, told: Told) -> None:
        self._span, self._told = span, told
        self._times: Counter[str] = Counter()
        self._open: list[ToolCall] = []
        self._before = ""
        self._rank = -span.start_ns - (HEARSAY if told.kind == "agent" or told.piecemeal else 0)

    def all(self) -> list[AnyEvent]:
        """Its events, in order."""
        if self._told.kind == "tool":
            return [self._result_of_span()]
        made = [self._message(message) for message in self._told.given]
        if self._told.kind == "agent":
            return [*made, *(self._message(message) for message in self._told.gave)]
        if self._told.gave or not self._told.piecemeal:
            made.append(self._output())
        return made

    def _named(self, name: str) -> str:
        """The name of a message that may be said more than once."""
        self._times[name] += 1
        return f"{name}:{self._times[name]}"

    def _envelope(self, key: str, rank: int, time_ns: int, alias: str = "") -> dict[str, Any]:
        """The envelope of the next event of the chain."""
        span = self._span
        link = Link(
            key=key, parent=span.span_id if span.log else span.parent_id, after=self._before, finality=rank, alias=alias
        )
        if not self._told.piecemeal:
            self._before = alias or key
        return {
            "id": EventId(digest("otlp", span.trace_id, span.span_id, span.name if span.log else "", key, rank)),
            "trajectory_id": TrajectoryId(span.trace_id),
            "time_ns": time_ns,
            "agent": self._told.agent,
            "link": link,
        }

    def _message(self, message: Message) -> AnyEvent:
        role = values.word(message.get("role"))
        if role == "assistant":
            calls, name = self._calls(message)
            self._open += calls
            return self._response(message, calls, self._envelope(name, self._rank, self._span.start_ns))
        if role in ("tool", "function"):
            return self._retold_result(message)
        content, flags = values.text_of(message.get("content"))
        name = values.word(message.get("name")) or ("" if role in _ROLES else role)
        key = self._named(f"said:{digest(role, name, content.strip())}")
        known: Any = _ROLES.get(role, "agent")
        envelope = self._envelope(key, self._rank, self._span.start_ns)
        return MessageReceived(
            **envelope, role=known, content=content, name=name, truncated=measured(content), flags=flags
        )

    def _calls(self, message: Message) -> tuple[tuple[ToolCall, ...], str]:
        """The calls of a message, each with an id, and its name."""
        asked = list(message.get("tool_calls") or ()) if isinstance(message.get("tool_calls"), list) else []
        if isinstance(message.get("function_call"), dict):
            asked.append({"function": message["function_call"]})
        calls = values.tool_calls(asked)
        if calls and all(call.id for call in calls):
            return calls, self._named(f"calls:{_joined(call.id for call in calls)}")
        said = values.text_of(message.get("content"))[0].strip()
        shown = [(call.name, call.arguments, call.arguments_raw) for call in calls]
        name = self._named(f"said:{digest('assistant', said, msgspec.json.encode(shown, order='sorted'))}")
        made = digest(name)[:16]
        return tuple(replace(call, id=call.id or f"{made}-{n}") for n, call in enumerate(calls, 1)), name

    def _retold_result(self, message: Message) -> AnyEvent:
        told_id, name = values.word(message.get("tool_call_id")), values.word(message.get("name"))
        call = next((one for one in self._open if (one.id == told_id if told_id else name in ("", one.name))), None)
        if call is not None:
            self._open.remove(call)
        call_id = told_id or (call.id if call else "")
        output, flags = values.text_of(message.get("content"))
        said = call_id or digest("tool", name, output.strip())
        envelope = self._envelope(self._named_result(said), self._rank, self._span.start_ns)
        error = values.text_of(message.get("error"))[0]
        name = name or (call.name if call else "")
        told: dict[str, Any] = {"call_id": call_id, "name": name, "output": output, "error": error}
        return ToolReturned(**envelope, **told, truncated=measured(output), flags=flags)

    def _named_result(self, call_id: str) -> str:
        self._times[f"call:{call_id}"] += 1
        times = self._times[f"call:{call_id}"]
        return f"call:{call_id}" if times == 1 else f"call:{call_id}:{times}"

    def _result_of_span(self) -> AnyEvent:
        span, told = self._span, self._told
        silent = told.output is None and not span.failed
        key = f"call:{told.call_id}" if told.call_id else span.span_id
        output = "" if silent else result_text(decoded(told.output))
        return ToolReturned(
            **self._envelope(key, SILENT if silent else span.end_ns, span.end_ns),
            call_id=told.call_id,
            name=told.tool,
            output=output,
            truncated=measured(output),
            error=span.error,
            duration_ns=max(0, span.end_ns - span.start_ns),
            flags=(NO_CONTENT,) if silent else (),
        )

    def _output(self) -> AnyEvent:
        span, told = self._span, self._told
        message = told.gave[0] if told.gave else {}
        calls, alias = self._calls(message) if told.gave else ((), "")
        key = f"{span.span_id}/out" if span.span_id else alias
        rank = (2 if told.usage.output_tokens else 1) if told.gave else 0
        more = ("choices_dropped",) if len(told.gave) > 1 else ()
        envelope = self._envelope(key, rank, span.end_ns, "" if key == alias else alias)
        made = self._response(message, calls, envelope, more if told.gave or span.failed else (NO_CONTENT,))
        failed = span.failed and not told.gave
        return replace(
            made,
            usage=told.usage,
            finish_reason=made.finish_reason or told.finish_reason or ("error" if failed else ""),
            model=told.model,
            response_id=told.response_id,
            temperature=told.temperature,
            top_p=told.top_p,
            top_k=told.top_k,
            sampling=told.sampling,
        )

    def _response(
        self, message: Message, calls: tuple[ToolCall, ...], envelope: dict[str, Any], flags: Iterable[str] = ()
    ) -> ModelResponded:
        said, doubts = values.text_of(message.get("content"))
        return ModelResponded(
            **envelope,
            text=said or values.word(message.get("refusal")),
            reasoning=values.word(message.get("reasoning_content") or message.get("reasoning")),
            tool_calls=calls,
            finish_reason=values.word(message.get("finish_reason")),
            truncated=measured(said),
            flags=(*doubts, *flags),
        )


def _joined(ids: Iterable[str]) -> str:
    joined = ",".join(ids)
    return joined if len(joined) <= 200 else digest(joined)
