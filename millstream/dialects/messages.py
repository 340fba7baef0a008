"""Messages as frameworks write them into a trace, read as chat messages.

Known: OpenAI chat and Responses, GenAI parts, Gemini contents, Vercel AI parts, and text that begins each
message with its role. What holds no message gives none; nothing is guessed from other JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from millstream import values
from millstream.dialects import items
from millstream.errors import Undecodable
from millstream.repair import parsed

_ROLES = {"model": "assistant", "ai": "assistant", "human": "user"}
_SPOKEN = re.compile(r"(?m)^(system|developer|user|assistant|tool): ")
_CALLS = ("tool_call", "tool-call", "function_call", "functionCall")
_RESULTS = ("tool_call_response", "tool-result", "function_response", "functionResponse")
_NAMES = ("name", "toolName")
_DEPTH = 6


def decoded(value: Any) -> Any:
    """The JSON inside a text, or the value as it is; at most twice, since traces write JSON of JSON."""
    for _ in range(2):
        if not isinstance(value, str) or value[:1] not in ("{", "[", '"'):
            break
        try:
            value, _ = parsed(value)
        except (ValueError, RecursionError):
            break
    return value


def input_messages(value: Any) -> list[dict[str, Any]]:
    """The messages a model was given; a bare text is the user's."""
    value = decoded(value)
    if isinstance(value, str):
        return _spoken(value) or ([{"role": "user", "content": value}] if value else [])
    return list(_messages(value, _DEPTH))


def output_messages(value: Any) -> list[dict[str, Any]]:
    """The messages a model gave; a bare text is the assistant's."""
    value = decoded(value)
    if isinstance(value, str):
        return [{"role": "assistant", "content": value}] if value else []
    return list(_messages(value, _DEPTH))


def tool_definitions(*told: Any) -> tuple[dict[str, Any], ...]:
    """The tools that a call's input or output names (``tools``, or Gemini's ``config.tools``), the first that does."""
    for value in map(decoded, told):
        fields = value if isinstance(value, dict) else {}
        for holder in (fields, values.mapping(fields.get("config"))):
            tools = holder.get("tools")
            found = [tool for tool in (tools if isinstance(tools, list) else ()) if isinstance(tool, dict)]
            if found:
                return tuple(one for tool in found for one in _declared(tool))
    return ()


def _declared(tool: dict[str, Any]) -> list[dict[str, Any]]:
    inside = tool.get("function_declarations", tool.get("functionDeclarations"))
    return [one for one in inside if isinstance(one, dict)] if isinstance(inside, list) else [tool]


def _spoken(text: str) -> list[dict[str, Any]]:
    """``system: …`` and so on at the beginnings of lines, the first at the beginning of the text.

    ``assistant: None`` is a turn that only called tools; its calls are not told, so it is left out.
    """
    if not _SPOKEN.match(text):
        return []
    _, *parts = _SPOKEN.split(text)
    told = [(role, said.removesuffix("\n")) for role, said in zip(parts[::2], parts[1::2], strict=True)]
    return [{"role": role, "content": said} for role, said in told if (role, said) != ("assistant", "None")]


def _messages(value: Any, depth: int) -> Iterator[dict[str, Any]]:
    if depth == 0:
        return
    if isinstance(value, list):
        yield from _listed(value, depth)
    elif isinstance(value, dict):
        yield from _of_object(value, depth)


def _listed(value: list[Any], depth: int) -> Iterator[dict[str, Any]]:
    if items.is_items(value):
        try:
            yield from items.chat_messages(value)
        except Undecodable:
            return
        return
    asked = [item for item in value if isinstance(item, dict) and ("toolCallId" in item or "toolName" in item)]
    if asked:
        yield {"role": "assistant", "content": None, "tool_calls": [_call(item) for item in asked]}
        return
    for item in value:
        yield from _messages(decoded(item), depth - 1)


def _of_object(value: dict[str, Any], depth: int) -> Iterator[dict[str, Any]]:
    if "role" in value:
        yield from _message(value)
    elif value.get("object") == "response" or items.is_responses(value):
        yield from _listed(value["output"] if isinstance(value.get("output"), list) else [], depth)
    elif "contents" in value:
        yield from _instruction(values.mapping(value.get("config")) or value)
        contents = value["contents"]
        plain = isinstance(contents, str)
        yield from [{"role": "user", "content": contents}] if plain else _messages(contents, depth - 1)
    elif isinstance(value.get("prompt"), str):
        yield {"role": "user", "content": value["prompt"]}
    else:
        yield from _wrapped(value, depth)


def _wrapped(value: dict[str, Any], depth: int) -> Iterator[dict[str, Any]]:
    """The message of the first choice or candidate (an empty one where there is none), or the messages inside."""
    for name in ("choices", "candidates"):
        options = value.get(name)
        if isinstance(options, list):
            yield from _messages(options[0], depth - 1) if options else [{"role": "assistant", "content": ""}]
            return
    for name in ("messages", "message", "new_message", "content", "prompt"):
        if isinstance(value.get(name), dict | list):
            for message in _messages(value[name], depth - 1):
                finish = value.get("finish_reason")
                yield {**message, "finish_reason": finish} if finish else message
            return


def _instruction(config: dict[str, Any]) -> Iterator[dict[str, Any]]:
    told = config.get("system_instruction", config.get("systemInstruction"))
    text = told if isinstance(told, str) else values.text_of(values.mapping(told).get("parts"))[0]
    if text:
        yield {"role": "system", "content": text}


def _message(value: dict[str, Any]) -> Iterator[dict[str, Any]]:
    role = values.word(value["role"])
    content = value.get("parts", value.get("content"))
    message = {**value, "role": _ROLES.get(role, role), "content": content}
    if not isinstance(content, list):
        yield message
        return
    said: list[Any] = []
    calls, results, thoughts = list(value.get("tool_calls") or ()), list[dict[str, Any]](), list[str]()
    for part in content:
        _sort(part, said, calls, results, thoughts)
    if said or calls or thoughts or not results:
        yield {**message, "content": said, "tool_calls": calls, "reasoning": "\n".join(thoughts)}
    yield from results


def _sort(part: Any, said: list[Any], calls: list[Any], results: list[dict[str, Any]], thoughts: list[str]) -> None:
    fields = values.mapping(part)
    kind = values.word(fields.get("type")) or next((name for name in fields if name in (*_CALLS, *_RESULTS)), "")
    inner = values.mapping(fields.get(kind)) or fields
    if kind in _CALLS:
        calls.append(_call(inner))
    elif kind in _RESULTS:
        results.append(_result(inner))
    elif kind in ("reasoning", "thinking"):
        thoughts.append(values.word(next((fields[n] for n in ("content", "text", kind) if fields.get(n)), "")))
    else:
        said.append(part)


def _call(fields: dict[str, Any]) -> dict[str, Any]:
    given = next((fields[name] for name in ("arguments", "args", "input") if name in fields), None)
    return {"id": fields.get("id") or fields.get("toolCallId"), "name": _first(fields, _NAMES), "arguments": given}


def _result(fields: dict[str, Any]) -> dict[str, Any]:
    found = _first(fields, ("response", "result", "output"))
    if isinstance(found, dict) and "value" in found and "type" in found:
        found = found["value"]
    identity = fields.get("id") or fields.get("toolCallId")
    return {"role": "tool", "tool_call_id": identity, "name": _first(fields, _NAMES), "content": result_text(found)}


def result_text(found: Any) -> str:
    """What a tool gave: the texts of typed parts, other JSON as JSON."""
    typed = isinstance(found, list) and all(isinstance(part, dict) and "type" in part for part in found)
    if found is None or isinstance(found, str) or typed:
        return values.text_of(found)[0]
    return msgspec.json.encode(found).decode()


def _first(fields: dict[str, Any], names: tuple[str, ...]) -> Any:
    return next((fields[name] for name in names if fields.get(name) is not None), None)
