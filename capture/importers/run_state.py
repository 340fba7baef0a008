"""Run states of the OpenAI Agents SDK (``RunState.to_json``), of schema 1.x: a run as far as it came.

The items are those of the whole run where the state has them, else those since it was resumed; each is the step of the
agent that it names. An approval repeats the call that it is about and is left out; a call that waits for one has no
result. Usage and response ids stand on the turns where the state has one response for each, else the totals on the
last. What else a state holds (a sandbox, credentials, approvals) does not come in.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from millstream import values
from millstream.capture.importers import members
from millstream.capture.importers.chat import ChatRun
from millstream.dialects.items import chat_messages
from millstream.errors import Undecodable, UnknownSchema

VERSION: Final = "$schemaVersion"
_KNOWN: Final = "1"
_REPEATED: Final = ("tool_approval_item", "mcp_approval_request_item", "mcp_approval_response_item")


def is_run_state(row: Any) -> bool:
    """Whether a row says which schema of a state it has."""
    return isinstance(row, dict) and isinstance(row.get(VERSION), str) and "current_agent" in row


def run_state(row: Any, _attempt: int, _group_size: int) -> ChatRun:
    """The run of a state. Raises `UnknownSchema` for another major version, `Undecodable` for what is no state."""
    version = row[VERSION]
    if version.partition(".")[0] != _KNOWN:
        raise UnknownSchema(f"a run state of schema {version}; this version reads {_KNOWN}.x")
    if not isinstance(row["current_agent"], dict):
        kind = type(row["current_agent"]).__name__
        raise Undecodable(f"current_agent is of type {kind}; it must be an object with a name")
    made = list(_messages(_items(row)))
    messages = [*_input(row.get("original_input")), *made]
    if not messages:
        raise Undecodable("the state holds neither an input nor an item")
    turns = [message for message in made if message["role"] == "assistant"]
    _settle(turns, row)
    tools = tuple(_tools(row))
    workflow = values.word(values.mapping(row.get("trace")).get("workflow_name"))
    question = members.first_question(messages)
    over = _whole(row.get("current_turn")) >= _whole(row.get("max_turns"), 1 << 62) and not _final(row)
    return ChatRun(
        messages=messages,
        task=members.task(members.hashed("state", [row.get("original_input")]), question, workflow or "openai-agents"),
        source="import:openai-agents",
        interface=members.interface(tools),
        tools=tools,
        reason="limit" if over else "done",
    )


def _whole(value: Any, default: int = 0) -> int:
    return members.whole(value, default)


def _final(row: Mapping[str, Any]) -> bool:
    return values.mapping(row.get("current_step")).get("type") == "next_step_final_output"


def _items(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The items of the run that tell something new."""
    listed = max(members.listed(row, "session_items"), members.listed(row, "generated_items"), key=len)
    for number, item in enumerate(listed, 1):
        if not isinstance(item, dict) or not isinstance(item.get("raw_item"), dict):
            raise Undecodable(f"item {number} has no raw_item; an item of a state is an object with one")
    return [item for item in listed if item.get("type") not in _REPEATED]


def _messages(items: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The items as chat messages, each turn with its agent."""
    named = _named(items)
    for agent, some in itertools.groupby(named, key=lambda pair: pair[0]):
        for message in chat_messages([raw for _, raw in some]):
            yield {**message, "agent": agent} if message["role"] == "assistant" else message


def _named(items: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(agent, Responses item); what a server ran and told without an id has one, the same for call and result."""
    told: dict[str, int] = {}
    for item in items:
        raw = dict(item["raw_item"])
        kind = values.word(raw.get("type"))
        if item.get("type") == "tool_call_output_item":
            raw = {"type": "function_call_output", "call_id": raw.get("call_id"), "output": _output(item, raw)}
        elif item.get("type") == "tool_call_item" and not kind.endswith("_call"):
            given = {name: value for name, value in raw.items() if name not in ("type", "call_id", "id", "status")}
            raw = {"type": "function_call", "call_id": raw.get("call_id"), "name": kind, "arguments": given}
        elif kind.endswith("_call") and not raw.get("call_id") and "output" not in raw and _told_apart(kind, items):
            told[kind] = told.get(kind, 0) + 1
            raw["call_id"] = f"{kind}:{told[kind]}"
        elif kind.endswith("_output") and not raw.get("call_id"):
            asked = kind.removesuffix("_output") + "_call"
            rest = {name: value for name, value in raw.items() if name not in ("type", "status", "id")}
            raw = {"type": kind, "call_id": f"{asked}:{told.get(asked, 0)}", "output": raw.get("output", rest)}
            raw["output"] = _text(raw["output"])
        yield values.word(values.mapping(item.get("agent")).get("name")), raw


def _told_apart(kind: str, items: list[dict[str, Any]]) -> bool:
    """Whether the results of such calls are items of their own."""
    return any(item["raw_item"].get("type") == kind.removesuffix("_call") + "_output" for item in items)


def _output(item: Mapping[str, Any], raw: Mapping[str, Any]) -> Any:
    return _text(
        next((one[key] for one, key in ((item, "output"), (raw, "output"), (raw, "result")) if key in one), "")
    )


def _text(value: Any) -> Any:
    return msgspec.json.encode(value).decode() if isinstance(value, dict) else value


def _input(told: Any) -> list[dict[str, Any]]:
    if isinstance(told, str):
        return [{"role": "user", "content": told}] if told else []
    return chat_messages(told) if isinstance(told, list) else []


def _settle(turns: list[dict[str, Any]], row: Mapping[str, Any]) -> None:
    """What responses told of themselves, on the turns that they are."""
    told = [values.mapping(one) for one in members.listed(row, "model_responses")]
    if not told and isinstance(row.get("last_model_response"), dict):
        told = [row["last_model_response"]]
    if len(told) == len(turns):
        for turn, response in zip(turns, told, strict=True):
            turn |= {"usage": _usage(response.get("usage")), "response_id": values.word(response.get("response_id"))}
    elif turns:
        turns[-1]["usage"] = _usage(values.mapping(row.get("context")).get("usage"))


def _usage(told: Any) -> dict[str, Any]:
    """Usage as the API tells it: here its details are lists of one."""
    found = values.mapping(told)
    for name in ("input_tokens_details", "output_tokens_details"):
        listed = found.get(name)
        if isinstance(listed, list):
            found = {**found, name: values.mapping(listed[0]) if listed else {}}
    return found


def _tools(row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The functions that the last turn was shown, as far as it used them."""
    listed = values.mapping(row.get("last_processed_response")).get("functions")
    for one in listed if isinstance(listed, list) else ():
        tool = values.mapping(values.mapping(one).get("tool"))
        if values.word(tool.get("name")):
            shown: dict[str, Any] = {"name": tool["name"], "description": values.word(tool.get("description"))}
            yield {
                "type": "function",
                "function": {**shown, "parameters": values.mapping(tool.get("paramsJsonSchema"))},
            }
