"""The OpenAI Agents SDK: ``agents.add_trace_processor(millstream.agents_processor())``.

A trace is a run, its id the trajectory's. Responses and generations are steps of the agent in whose span they are,
function spans the results of tools; a handoff is the beginning of another agent's segment. The library is imported
when the processor is made, not before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from millstream import values
from millstream.capture import scope
from millstream.capture.framework_runs import Part, Parts
from millstream.capture.guard import guarded
from millstream.dialects.openai_calls import Answered, Asked, answered, asked
from millstream.events import EndReason, LogprobKind

if TYPE_CHECKING:
    from agents.tracing import TracingProcessor

    from millstream.capture.client import Client

_TURNS = "Max turns exceeded"
_ASKED_IN = (
    "instructions",
    "tools",
    "temperature",
    "top_p",
    "previous_response_id",
    "max_output_tokens",
    "tool_choice",
)


class Recorder:
    """What the processor does, under the names of the Agents SDK. Nothing here raises."""

    def __init__(
        self, client: Callable[[], Client], fields: Mapping[str, Any], logprob_kind: LogprobKind | None = None
    ) -> None:
        self._client, self._logprob_kind = client, logprob_kind
        self._parts = Parts(client, fields)
        self._ends: dict[str, tuple[EndReason, str]] = {}
        self._answers: dict[str, str] = {}

    @guarded
    def on_trace_start(self, trace: Any) -> None:
        """A workflow begins."""
        self._parts.begin(trace.trace_id, "", trace, {"trajectory_id": trace.trace_id})

    @guarded
    def on_trace_end(self, trace: Any) -> None:
        """It is over; what failed in it says how."""
        part = self._parts.take(trace.trace_id)
        reason, error = self._ends.pop(trace.trace_id, ("done", ""))
        answer = self._answers.pop(trace.trace_id, None)
        if part is not None and part.owned:
            part.run.end(answer if reason == "done" else None, reason=reason, error=error)

    @guarded
    def on_span_start(self, span: Any) -> None:
        """A part of it begins: an agent acts, or a tool runs."""
        above = self._parts.get(values.word(span.parent_id)) or self._parts.get(span.trace_id)
        if above is None:
            return
        data = span.span_data
        named = values.word(getattr(data, "name", "")) if data.type == "agent" else ""
        self._parts.put(span.span_id, Part(run=above.run, agent=named or above.agent, began_ns=time.perf_counter_ns()))

    @guarded
    def on_span_end(self, span: Any) -> None:
        """It is over and knows what it was given and gave."""
        part = self._parts.take(span.span_id)
        if part is None:
            return
        if span.error and span.span_data.type in ("agent", "task", "turn", "response", "generation"):
            self._failed(span)
        with scope.entered(self._parts.acting(part)):
            if span.span_data.type == "response" and span.span_data.response is not None:
                self._step(part, span.trace_id, *_of_response(span.span_data))
            elif span.span_data.type == "generation" and span.span_data.output:
                self._step(part, span.trace_id, *_of_generation(span.span_data))
            elif span.span_data.type == "function":
                self._ran(part, span)

    def shutdown(self) -> None:
        """The process ends; the client sends by itself what it has."""

    def force_flush(self) -> None:
        """Wait until the log has everything."""
        self._client().flush()

    def _step(self, part: Part, trace_id: str, told: Asked, answer: Answered) -> None:
        request = part.run.conversation.asked(told)
        part.run.conversation.answered(request, answer, logprob_kind=self._logprob_kind)
        if not answer.messages[-1].get("tool_calls"):
            self._answers[trace_id] = values.text_of(answer.messages[-1].get("content"))[0]

    def _ran(self, part: Part, span: Any) -> None:
        data, error = span.span_data, values.mapping(span.error)
        given = data.input
        if isinstance(given, str):
            try:
                given = msgspec.json.decode(given)
            except (msgspec.MsgspecError, RecursionError):
                given = None
        took = time.perf_counter_ns() - part.began_ns
        why = ": ".join(filter(None, (values.word(error.get("message")), _why(error.get("data")))))
        part.run.conversation.ran(data.name, given, data.output, error=why, duration_ns=took)

    def _failed(self, span: Any) -> None:
        message = values.word(values.mapping(span.error).get("message"))
        reason: EndReason = "limit" if message == _TURNS else "crash"
        self._ends.setdefault(span.trace_id, (reason, message))


def _why(data: Any) -> str:
    return values.word(values.mapping(data).get("error"))


def _of_response(data: Any) -> tuple[Asked, Answered]:
    body = values.plain(data.response.model_dump(mode="json"))
    request = {name: body.get(name) for name in _ASKED_IN}
    given = data.input if isinstance(data.input, str) else [values.mapping(item) for item in data.input or ()]
    return asked("responses", {**request, "model": body.get("model"), "input": given}), answered("responses", body)


def _of_generation(data: Any) -> tuple[Asked, Answered]:
    settings = values.mapping(data.model_config)
    given = [values.mapping(message) for message in data.input or ()]
    told = asked("chat", {**settings, "model": data.model, "messages": given})
    output = [values.plain(values.mapping(one)) for one in data.output]
    usage = values.mapping(data.usage)
    if isinstance(output[0].get("output"), list):  # a stream of completions is told as a response
        return told, answered("responses", {**output[0], "usage": usage or output[0].get("usage")})
    body = {"model": data.model, "choices": [{"message": one} for one in output], "usage": usage}
    return told, answered("chat", body)


def processor(
    client: Callable[[], Client], fields: Mapping[str, Any], logprob_kind: LogprobKind | None = None
) -> TracingProcessor:
    """A tracing processor that records. Raises ImportError without openai-agents."""
    from agents.tracing import TracingProcessor

    class MillstreamProcessor(Recorder, TracingProcessor):
        """Called where things happen, in their order."""

    return MillstreamProcessor(client, fields, logprob_kind)
