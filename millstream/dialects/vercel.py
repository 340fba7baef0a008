"""The Vercel AI SDK: ``ai.operationId`` says what a span is. ``ai.generateText`` and its like are the run (prompt and
last answer), ``….doGenerate`` and ``….doStream`` the calls of the model, ``ai.toolCall`` the tools.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from millstream.dialects.messages import decoded, input_messages
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

_OPERATION: Final = "ai.operationId"
_RUNS: Final = ("ai.generateText", "ai.streamText", "ai.generateObject", "ai.streamObject")
_CALLS: Final = (".doGenerate", ".doStream")


def reads(span: Span) -> bool:
    """Whether a span speaks this dialect."""
    return _OPERATION in span.attributes


def told(span: Span) -> Told:
    """What it tells."""
    found = span.attributes
    operation = text(found, _OPERATION)
    if operation == "ai.toolCall":
        return Told(
            kind="tool",
            tool=text(found, "ai.toolCall.name"),
            call_id=text(found, "ai.toolCall.id"),
            output=first(found, "ai.toolCall.result", "ai.toolCall.output"),
        )
    if operation in _RUNS:
        agent = text(found, "ai.telemetry.functionId")
        return Told(kind="agent", agent=agent, given=without_empty(_prompt(found)), gave=_gave(found), **_known(found))
    if operation.endswith(_CALLS):
        given = without_empty(input_messages(first(found, "ai.prompt.messages"))) or without_empty(_prompt(found))
        return Told(kind="model", given=given, gave=_gave(found), **_known(found))
    return Told(kind="other")


def _prompt(found: Mapping[str, Any]) -> list[Message]:
    """``{system, prompt}`` or ``{system, messages}``."""
    prompt = decoded(first(found, "ai.prompt"))
    if not isinstance(prompt, dict):
        return input_messages(prompt)
    system = prompt.get("system")
    first_message = [{"role": "system", "content": system}] if isinstance(system, str) and system else []
    told = prompt.get("messages", prompt.get("prompt"))
    return [*first_message, *input_messages(told)]


def _gave(found: Mapping[str, Any]) -> list[Message]:
    calls = decoded(first(found, "ai.response.toolCalls", "ai.result.toolCalls"))
    said = text(found, "ai.response.text", "ai.result.text", "ai.response.object", "ai.result.object")
    message: Message = {
        "role": "assistant",
        "content": said,
        "reasoning": text(found, "ai.response.reasoning"),
        "tool_calls": [_call(one) for one in calls if isinstance(one, dict)] if isinstance(calls, list) else [],
        "finish_reason": text(found, "ai.response.finishReason", "gen_ai.response.finish_reasons"),
    }
    return without_empty([message])


def _call(fields: Mapping[str, Any]) -> dict[str, Any]:
    given = next((fields[name] for name in ("args", "input", "arguments") if name in fields), None)
    return {"id": fields.get("toolCallId"), "name": fields.get("toolName"), "arguments": given}


_SAMPLING: Final = {
    "seed": "ai.settings.seed",
    "max_tokens": "ai.settings.maxTokens",
    "stop": "ai.settings.stopSequences",
    "frequency_penalty": "ai.settings.frequencyPenalty",
    "presence_penalty": "ai.settings.presencePenalty",
}


def _max_tokens(found: Mapping[str, Any]) -> dict[str, Any]:
    """The limit under its newer name."""
    told = found.get("ai.settings.maxOutputTokens")
    return {} if told is None else {"ai.settings.maxTokens": told}


def _known(found: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "model": text(found, "ai.response.model", "gen_ai.response.model", "ai.model.id", "gen_ai.request.model"),
        "response_id": text(found, "ai.response.id", "gen_ai.response.id"),
        "finish_reason": text(found, "ai.response.finishReason"),
        "conversation": text(found, "ai.telemetry.metadata.sessionId", "ai.telemetry.metadata.conversationId"),
        "temperature": number(first(found, "ai.settings.temperature", "gen_ai.request.temperature")),
        "top_p": number(first(found, "ai.settings.topP", "gen_ai.request.top_p")),
        "top_k": whole(found["ai.settings.topK"]) if "ai.settings.topK" in found else None,
        "sampling": sampling({**found, **_max_tokens(found)}, _SAMPLING),
        "tools": definitions(first(found, "ai.prompt.tools")),
        "usage": usage(
            found,
            input_tokens=("ai.usage.inputTokens", "ai.usage.promptTokens", "gen_ai.usage.input_tokens"),
            output_tokens=("ai.usage.outputTokens", "ai.usage.completionTokens", "gen_ai.usage.output_tokens"),
            cached_tokens=("ai.usage.cachedInputTokens",),
            reasoning_tokens=("ai.usage.reasoningTokens",),
        ),
    }
