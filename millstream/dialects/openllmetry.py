"""OpenLLMetry (Traceloop): ``traceloop.span.kind`` on workflows, tasks, agents and tools; calls of models have
``llm.request.type`` and messages in flat attributes, ``gen_ai.prompt.N.content`` and ``gen_ai.completion.N.content``
(``llm.prompts.N`` in old ones). Newer ones write the messages of the GenAI conventions, which are read as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec.structs import replace

from millstream.dialects import genai
from millstream.dialects.messages import decoded, input_messages, output_messages
from millstream.dialects.spans import Span
from millstream.dialects.told import Message, Told, definitions, first, numbered, text, without_empty

_KIND: Final = "traceloop.span.kind"
_TYPE: Final = "llm.request.type"
_FLAT: Final = ("gen_ai.prompt.0.", "gen_ai.completion.0.", "llm.prompts.0.", "llm.completions.0.")


def reads(span: Span) -> bool:
    """Whether a span speaks this dialect."""
    return not span.log and any(name.startswith(("traceloop.", _TYPE, *_FLAT)) for name in span.attributes)


def told(span: Span) -> Told:
    """What it tells."""
    found = span.attributes
    kind = text(found, _KIND)
    conversation = text(
        found, "traceloop.association.properties.session_id", "traceloop.association.properties.conversation_id"
    )
    if kind == "tool":
        name = text(found, "traceloop.entity.name") or span.name.removesuffix(".tool")
        return Told(kind="tool", tool=name, output=_output(found), conversation=conversation)
    if kind == "agent" or (kind == "workflow" and span.root):
        agent = text(found, "traceloop.entity.name") or span.name.removesuffix(f".{kind}")
        return Told(kind="agent", agent=agent if kind == "agent" else "", conversation=conversation)
    if _calls_model(found):
        return _call(span, conversation)
    return genai.told(span) if "gen_ai.operation.name" in found else Told(kind="other", conversation=conversation)


def _calls_model(found: Mapping[str, Any]) -> bool:
    kind = text(found, _TYPE)
    return kind in ("chat", "completion") or (not kind and any(name.startswith(_FLAT) for name in found))


def _call(span: Span, conversation: str) -> Told:
    found = span.attributes
    given = _messages(found, "gen_ai.prompt") or _messages(found, "llm.prompts")
    gave = _messages(found, "gen_ai.completion", "assistant") or _messages(found, "llm.completions", "assistant")
    known = genai.settings(found)
    tools = [_tool(one) for one in numbered(found, "llm.request.functions")]
    told_by_genai = genai.told(replace(span, attributes={**found, "gen_ai.operation.name": "chat"}))
    known |= {"conversation": conversation, "tools": definitions(tools) or known["tools"]}
    known["finish_reason"] = known["finish_reason"] or text(found, "llm.response.finish_reason")
    known["model"] = known["model"] or text(found, "llm.response.model", "llm.request.model")
    return Told(
        kind="model",
        given=without_empty(given) or told_by_genai.given,
        gave=without_empty(gave) or told_by_genai.gave,
        agent=text(found, "gen_ai.agent.name"),
        **known,
    )


def _messages(found: Mapping[str, Any], prefix: str, role: str = "user") -> list[Message]:
    made: list[Message] = []
    for fields in numbered(found, prefix):
        content = first(fields, "content")
        parts = decoded(content)
        calls = [
            {"id": one.get("id"), "name": one.get("name"), "arguments": one.get("arguments")}
            for one in numbered(fields, "tool_calls")
        ]
        message: Message = {
            "role": text(fields, "role") or role,
            "content": parts if isinstance(parts, list) else content,
            "tool_call_id": fields.get("tool_call_id"),
            "finish_reason": text(fields, "finish_reason"),
            "reasoning": text(fields, "reasoning"),
        }
        read = (output_messages if role == "assistant" else input_messages)([message])
        made += [{**one, **({"tool_calls": [*(one.get("tool_calls") or ()), *calls]} if calls else {})} for one in read]
    return made


def _tool(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {**fields, "parameters": decoded(fields.get("parameters"))}


def _output(found: Mapping[str, Any]) -> Any:
    """What a tool gave: the ``output`` inside the entity's, where it is wrapped."""
    told = decoded(first(found, "traceloop.entity.output"))
    return told["output"] if isinstance(told, dict) and "output" in told else told
