"""LangChain's messages as chat messages, by what they have, not by their classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millstream import values
from millstream.dialects.openai_calls import Answered, answered
from millstream.dialects.told import Message

_ROLES = {"human": "user", "ai": "assistant", "AIMessageChunk": "assistant", "HumanMessageChunk": "user"}
_THOUGHTS = ("reasoning", "thinking")
_CALLS = ("tool_use", "tool_call", "function_call", "input_json_delta", "tool_call_chunk")


def chat_message(message: Any) -> Message:
    """A message of any kind."""
    kind = values.word(getattr(message, "type", "")) or "user"
    role = values.word(getattr(message, "role", "")) if kind == "chat" else _ROLES.get(kind, kind)
    content = getattr(message, "content", message)
    parts = [part for part in content if not _is_other(part)] if isinstance(content, list) else content
    made: Message = {"role": role, "content": parts, "name": getattr(message, "name", None)}
    if role == "assistant":
        made |= {"tool_calls": _calls(message), "reasoning": _reasoning(message, content)}
    if hasattr(message, "tool_call_id"):
        failed = getattr(message, "status", "") == "error"
        made |= {"role": "tool", "tool_call_id": message.tool_call_id, "error": content if failed else ""}
    return made


def _is_other(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("type") in (*_THOUGHTS, *_CALLS)


def _calls(message: Any) -> list[dict[str, Any]]:
    whole = [_call(call, call.get("args")) for call in getattr(message, "tool_calls", None) or ()]
    return whole + [_call(call, call.get("args")) for call in getattr(message, "invalid_tool_calls", None) or ()]


def _call(call: Mapping[str, Any], arguments: Any) -> dict[str, Any]:
    return {"id": call.get("id"), "name": call.get("name"), "arguments": arguments}


def _reasoning(message: Any, content: Any) -> str:
    told = values.mapping(getattr(message, "additional_kwargs", None)).get("reasoning_content")
    if isinstance(told, str) and told:
        return told
    parts = [part for part in content if isinstance(part, Mapping)] if isinstance(content, list) else []
    texts = [
        part.get(name) for part in parts if part.get("type") in _THOUGHTS for name in ("reasoning", "thinking", "text")
    ]
    return "\n".join(text for text in texts if isinstance(text, str) and text)


def answered_of(response: Any) -> Answered:
    """The first answer of an `LLMResult`."""
    listed = getattr(response, "generations", None) or [[]]
    if not listed[0]:
        return answered("chat", {})
    generation = listed[0][0]
    message = getattr(generation, "message", None)
    told = values.mapping(getattr(message, "response_metadata", None)) | values.mapping(
        getattr(generation, "generation_info", None)
    )
    made = (
        {"role": "assistant", "content": getattr(generation, "text", "")} if message is None else chat_message(message)
    )
    output = values.mapping(getattr(response, "llm_output", None))
    usage = _usage(getattr(message, "usage_metadata", None)) or told.get("token_usage") or output.get("token_usage")
    choice = {"message": made, "logprobs": told.get("logprobs"), "token_ids": told.get("token_ids")}
    return answered(
        "chat",
        {
            "id": told.get("id") or getattr(message, "id", None),
            "model": told.get("model_name") or told.get("model") or output.get("model_name"),
            "choices": [{**choice, "finish_reason": told.get("finish_reason") or told.get("stop_reason")}],
            "usage": usage,
            "prompt_token_ids": told.get("prompt_token_ids"),
        },
    )


def _usage(told: Any) -> dict[str, Any]:
    fields = values.mapping(told)
    if not fields:
        return {}
    given, gave = values.mapping(fields.get("input_token_details")), values.mapping(fields.get("output_token_details"))
    return {
        "input_tokens": fields.get("input_tokens"),
        "output_tokens": fields.get("output_tokens"),
        "cached_tokens": given.get("cache_read"),
        "reasoning_tokens": gave.get("reasoning"),
    }


def question_in(inputs: Any) -> str:
    """What a chain was asked: its text, the last message of a person, or its one text."""
    found = _last(inputs, ("human", "user"))
    if found:
        return found
    fields = inputs if isinstance(inputs, Mapping) else {}
    named = next((fields[name] for name in ("input", "question", "query") if isinstance(fields.get(name), str)), "")
    texts = [value for value in fields.values() if isinstance(value, str)]
    return named or (texts[0] if len(texts) == 1 else "")


def text_in(outputs: Any) -> str:
    """What a chain answered: its text, or its last message, or its one text."""
    found = _last(outputs, ("ai", "assistant"))
    if found:
        return found
    fields = outputs if isinstance(outputs, Mapping) else {}
    named = next((fields[name] for name in ("output", "answer", "result") if isinstance(fields.get(name), str)), "")
    texts = [value for value in fields.values() if isinstance(value, str)]
    return named or (texts[0] if len(texts) == 1 else "")


def _last(told: Any, kinds: tuple[str, ...]) -> str:
    """A text, or the text of the last message of these kinds in a list of messages."""
    if isinstance(told, str):
        return told
    listed = told.get("messages") if isinstance(told, Mapping) else told
    for one in reversed(listed if isinstance(listed, list | tuple) else [listed]):
        if isinstance(one, tuple | list) and len(one) == 2 and one[0] in kinds:
            return values.text_of(one[1])[0]
        role = one.get("role", one.get("type")) if isinstance(one, Mapping) else getattr(one, "type", None)
        if role in kinds or (isinstance(role, str) and _ROLES.get(role) in kinds):
            return values.text_of(one.get("content") if isinstance(one, Mapping) else chat_message(one)["content"])[0]
    return ""
