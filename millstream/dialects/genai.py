"""OpenTelemetry's GenAI semantic conventions: spans and events of 1.41, and what older ones wrote.

``gen_ai.operation.name`` says what a span is; before it there was only ``gen_ai.system`` beside a model. Content
is opt-in: messages stand on the span or on the event ``gen_ai.client.inference.operation.details``, before 1.37
in one event a message (1.36), before that in span events. Arguments and results come as objects or as JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from millstream import values
from millstream.dialects.messages import decoded, input_messages, output_messages
from millstream.dialects.spans import Span
from millstream.dialects.told import (
    Message,
    Told,
    definitions,
    first,
    number,
    sampling,
    text,
    usage,
    whole,
    without_empty,
)

DETAILS: Final = "gen_ai.client.inference.operation.details"
EVALUATION: Final = "gen_ai.evaluation.result"
_MODEL: Final = ("chat", "generate_content", "text_completion")
_AGENT: Final = ("invoke_agent", "invoke_workflow")
_SAID: Final = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
}
_CHOICE: Final = "gen_ai.choice"


def reads(span: Span) -> bool:
    """Whether a span or event speaks this dialect."""
    return span.name.startswith("gen_ai.") or any(name.startswith("gen_ai.") for name in span.attributes)


def told(span: Span) -> Told:
    """What it tells."""
    if span.log:
        return _told_by_event(span)
    found = span.attributes
    operation = text(found, "gen_ai.operation.name")
    if operation == "execute_tool" or (not operation and "gen_ai.tool.name" in found):
        return _tool(span)
    if operation in _AGENT:
        agent = text(found, "gen_ai.agent.name", "gen_ai.workflow.name") or span.name.removeprefix(f"{operation} ")
        return _inference(span, "agent", agent)
    if operation in _MODEL or (not operation and first(found, "gen_ai.request.model", "gen_ai.response.model")):
        return _inference(span, "model", text(found, "gen_ai.agent.name"))
    return Told(kind="other", conversation=text(found, "gen_ai.conversation.id"))


def _inference(span: Span, kind: Any, agent: str) -> Told:
    found = {**_details(span), **span.attributes}
    given, gave = _messages(found, span)
    return Told(kind=kind, given=given, gave=gave, agent=agent, **settings(found))


def _details(span: Span) -> dict[str, Any]:
    """The attributes of the details event, where it stands inside the span."""
    return next((one.attributes for one in span.happened if one.name == DETAILS), {})


_SAMPLING: Final = {
    **{name: f"gen_ai.request.{name}" for name in ("seed", "max_tokens", "frequency_penalty", "presence_penalty")},
    "stop": "gen_ai.request.stop_sequences",
    "n": "gen_ai.request.choice.count",
}


def settings(found: Mapping[str, Any]) -> dict[str, Any]:
    """The members of `Told` that the conventions name alike on every call; other dialects carry them, too."""
    return {
        "model": text(found, "gen_ai.response.model", "gen_ai.request.model"),
        "response_id": text(found, "gen_ai.response.id"),
        "finish_reason": text(found, "gen_ai.response.finish_reasons"),
        "conversation": text(found, "gen_ai.conversation.id"),
        "temperature": number(first(found, "gen_ai.request.temperature")),
        "top_p": number(first(found, "gen_ai.request.top_p")),
        "top_k": whole(found["gen_ai.request.top_k"]) if "gen_ai.request.top_k" in found else None,
        "sampling": sampling(found, _SAMPLING),
        "tools": definitions(first(found, "gen_ai.tool.definitions")),
        "usage": usage(
            found,
            input_tokens=("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens"),
            output_tokens=("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens"),
            cached_tokens=("gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_read_input_tokens"),
            reasoning_tokens=("gen_ai.usage.reasoning.output_tokens", "gen_ai.usage.reasoning_tokens"),
        ),
    }


def _messages(found: Mapping[str, Any], span: Span) -> tuple[list[Message], list[Message]]:
    given = _instructions(first(found, "gen_ai.system_instructions"))
    given += input_messages(first(found, "gen_ai.input.messages"))
    gave = output_messages(first(found, "gen_ai.output.messages"))
    for one in span.happened:
        more_given, more_gave = _said(one.name, _content(one.attributes))
        given += more_given or input_messages(one.attributes.get("gen_ai.prompt"))
        gave += more_gave or output_messages(one.attributes.get("gen_ai.completion"))
    return without_empty(given), without_empty(gave)


def _instructions(value: Any) -> list[Message]:
    """A system message of parts, of text, or of messages that name their role."""
    value = decoded(value)
    parts = value if isinstance(value, list) else [value] if value else []
    if any(isinstance(part, dict) and "role" in part for part in parts):
        return [{**message, "role": "system"} for message in input_messages(parts)]
    content = values.text_of(parts)[0]
    return [{"role": "system", "content": content}] if content else []


def _content(attributes: Mapping[str, Any]) -> Any:
    """The body of a message event that stands inside a span: whole under one attribute, or its members flat."""
    body = decoded(first(attributes, "gen_ai.event.content", "body"))
    return body if isinstance(body, dict) else {name.removeprefix("gen_ai."): one for name, one in attributes.items()}


def _said(name: str, body: Any) -> tuple[list[Message], list[Message]]:
    """What one message event of 1.36 tells."""
    fields = values.mapping(body) if not isinstance(body, str) else {"content": body}
    if name == _CHOICE:
        message = values.mapping(decoded(fields.get("message"))) or fields
        if whole(fields.get("index")):
            return [], []
        finish = values.word(fields.get("finish_reason"))
        return [], output_messages({**message, "role": "assistant", "finish_reason": finish})
    role = _SAID.get(name)
    if role is None:
        return [], []
    answered = {"tool_call_id": fields.get("id")} if role == "tool" else {}
    return input_messages({**fields, **answered, "role": role, "tool_calls": decoded(fields.get("tool_calls"))}), []


def _tool(span: Span) -> Told:
    found = span.attributes
    return Told(
        kind="tool",
        tool=text(found, "gen_ai.tool.name") or span.name.removeprefix("execute_tool "),
        call_id=text(found, "gen_ai.tool.call.id"),
        output=first(found, "gen_ai.tool.call.result", "gen_ai.tool.message"),
        agent=text(found, "gen_ai.agent.name"),
        conversation=text(found, "gen_ai.conversation.id"),
    )


def _told_by_event(span: Span) -> Told:
    if span.name == DETAILS:
        body = span.body if isinstance(span.body, dict) else {}
        whole_span = Span(
            trace_id=span.trace_id, span_id=span.span_id, attributes={**body, **span.attributes}, log=True
        )
        return _inference(whole_span, "model", text(span.attributes, "gen_ai.agent.name"))
    given, gave = _said(span.name, decoded(span.body))
    kind: Any = "model" if given or gave else "other"
    return Told(
        kind=kind, given=without_empty(given), gave=without_empty(gave), piecemeal=True, **settings(span.attributes)
    )
