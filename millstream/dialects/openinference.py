"""OpenInference (Arize): ``openinference.span.kind`` says what a span is; messages are flat attributes.

``llm.input_messages.N.message.content``, ``….message.contents.M.message_content.text``,
``….message.tool_calls.M.tool_call.function.arguments`` and so on. A tool's span seldom has the id of its call; it is
found by the tool's name. Chains are no steps: a root that is one ends the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from millstream.dialects.messages import decoded, input_messages, output_messages
from millstream.dialects.spans import Span
from millstream.dialects.told import (
    Message,
    Told,
    first,
    number,
    numbered,
    sampling,
    text,
    usage,
    whole,
    without_empty,
)

_KIND: Final = "openinference.span.kind"


def reads(span: Span) -> bool:
    """Whether a span speaks this dialect."""
    return _KIND in span.attributes


def told(span: Span) -> Told:
    """What it tells."""
    found = span.attributes
    kind, conversation = text(found, _KIND).upper(), text(found, "session.id")
    if kind == "LLM":
        return _call(found, conversation)
    if kind == "TOOL":
        return Told(
            kind="tool",
            tool=text(found, "tool.name") or span.name,
            call_id=text(found, "tool_call.id", "tool.id"),
            output=first(found, "output.value"),
            conversation=conversation,
        )
    if kind == "AGENT" or (kind == "CHAIN" and span.root):
        agent = text(found, "agent.name") or (span.name if kind == "AGENT" else "")
        return Told(kind="agent", agent=agent, conversation=conversation, answer=_answer(found))
    return Told(kind="other", conversation=conversation)


def _call(found: Mapping[str, Any], conversation: str) -> Told:
    chosen = decoded(first(found, "llm.invocation_parameters"))
    chosen = chosen if isinstance(chosen, dict) else {}
    given = _messages(found, "llm.input_messages") or input_messages(first(found, "input.value"))
    gave = _messages(found, "llm.output_messages") or output_messages(first(found, "output.value"))
    tools = (decoded(one.get("tool.json_schema")) for one in numbered(found, "llm.tools"))
    return Told(
        kind="model",
        given=without_empty(given),
        gave=without_empty(gave),
        agent=text(found, "agent.name"),
        model=text(found, "llm.model_name", "embedding.model_name"),
        response_id=text(found, "llm.response_id", "gen_ai.response.id"),
        finish_reason=text(found, "llm.finish_reason", "gen_ai.response.finish_reasons"),
        conversation=conversation,
        temperature=number(chosen.get("temperature")),
        top_p=number(chosen.get("top_p")),
        top_k=whole(chosen["top_k"]) if isinstance(chosen.get("top_k"), int) else None,
        sampling=sampling(chosen),
        tools=tuple(one for one in tools if isinstance(one, dict)),
        usage=usage(
            found,
            input_tokens=("llm.token_count.prompt",),
            output_tokens=("llm.token_count.completion",),
            cached_tokens=("llm.token_count.prompt_details.cache_read",),
            reasoning_tokens=("llm.token_count.completion_details.reasoning",),
        ),
    )


def _answer(found: Mapping[str, Any]) -> str:
    value = first(found, "output.value")
    return value if isinstance(value, str) and not isinstance(decoded(value), dict | list) else ""


def _messages(found: Mapping[str, Any], prefix: str) -> list[Message]:
    return [
        _message({name.removeprefix("message."): value for name, value in one.items()})
        for one in numbered(found, prefix)
    ]


def _message(fields: Mapping[str, Any]) -> Message:
    parts = [_part(one) for one in numbered(fields, "contents")]
    content = first(fields, "content")
    said = input_messages([{"role": fields.get("role"), "content": parts or decoded(content)}]) if parts else []
    message: Message = said[0] if said else {"role": fields.get("role"), "content": content}
    calls = [_asked(one) for one in numbered(fields, "tool_calls")]
    if name := text(fields, "function_call_name"):
        calls.append({"name": name, "arguments": fields.get("function_call_arguments_json")})
    known = {
        "role": text(fields, "role") or "user",
        "tool_call_id": fields.get("tool_call_id"),
        "name": fields.get("name"),
    }
    finish = text(fields, "finish_reason")
    return {**message, **known, **({"tool_calls": calls} if calls else {}), "finish_reason": finish}


def _part(fields: Mapping[str, Any]) -> dict[str, Any]:
    kind = text(fields, "message_content.type")
    return (
        {"type": kind or "text", "text": fields["message_content.text"]}
        if "message_content.text" in fields
        else {"type": kind}
    )


def _asked(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": fields.get("tool_call.id"),
        "name": fields.get("tool_call.function.name"),
        "arguments": fields.get("tool_call.function.arguments"),
    }
