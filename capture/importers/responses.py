"""OpenAI Responses items: NeMo Gym's rollouts, stored responses with their input, and bare lists of items.

A model's turn is told as several items (reasoning, messages, calls). A new turn begins after anything that
is not the model's, with reasoning after a message or a call, and with a message after a call or a message.
The usage of the response stands on its last turn, its sampling settings on every turn. A response without
any item is an empty turn. A call that the provider ran itself has no ``call_id``; what it found is its
result. An item of another type is kept as a message under the name of its type.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from millstream.capture import values
from millstream.capture.importers import members
from millstream.capture.importers.chat import ChatRun
from millstream.errors import Undecodable
from millstream.events import EndReason

_ITEMS = ("message", "reasoning", "function_call", "function_call_output", "custom_tool_call", "computer_call")
_TOLD = ("type", "id", "call_id", "name", "status", "arguments", "input", "output", "outputs", "results", "error")
_NOT_METADATA = ("reward", "responses_create_params", "response", "question", "expected_answer")


def is_items(value: Any) -> bool:
    """Whether a list holds Responses items, among them one that is no chat message."""
    return isinstance(value, list) and any(
        isinstance(item, dict) and item.get("type") in _ITEMS[1:] and "role" not in item for item in value
    )


def is_responses(row: Any) -> bool:
    """Whether a row is a rollout of NeMo Gym, a stored response, or a bare list of items."""
    if not isinstance(row, dict):
        return is_items(row)
    if isinstance(row.get("responses_create_params"), dict) or row.get("object") == "response":
        return True
    output = row.get("output")
    typed = isinstance(output, list) and any(isinstance(item, dict) and item.get("type") in _ITEMS for item in output)
    return typed and isinstance(row.get("input"), list | str)


def group_key(row: Any) -> str:
    """Rollouts of one input are one group, whatever file numbers them."""
    if not isinstance(row, dict):
        return ""
    asked = _request(row)
    return members.hashed("responses", [asked.get("input"), asked.get("instructions"), asked.get("tools")])


def responses_run(row: Any, attempt: int, group_size: int) -> ChatRun:
    """The run of a row. Raises `Undecodable`, also for a row that holds an input and no response."""
    fields = {"input": row, "output": []} if isinstance(row, list) else row
    asked, response = _request(fields), _response(fields)
    shown, output = _input(asked), chat_messages(members.listed(response, "output"))
    if shown and not output and not isinstance(row, list):
        output = [{"role": "assistant", "content": ""}]
    _settle(output, response)
    messages = [*shown, *output]
    if not messages:
        raise Undecodable("input and output are empty; a run has at least one item")
    tools = tuple(values.mapping(tool) for tool in members.listed(response, "tools") or members.listed(asked, "tools"))
    identity = values.word(fields.get("task_id")) or group_key(fields) or members.hashed("responses", row)
    question = values.word(fields.get("question")) or members.first_question(messages)
    family = values.word(values.mapping(fields.get("agent_ref")).get("name"))
    kept = members.scalars(fields, _NOT_METADATA)
    reason, error = _ended(fields, response)
    return ChatRun(
        messages=messages,
        task=members.task(identity, question, family or "responses", fields.get("expected_answer"), kept),
        source="import:responses",
        interface=members.interface(tools),
        group=group_key(fields),
        attempt=members.whole(fields.get("_ng_rollout_index"), attempt),
        group_size=group_size,
        tools=tools,
        model=values.word(response.get("model")),
        reward=members.reward(fields),
        reason=reason,
        error=error,
    )


def _request(row: Mapping[str, Any]) -> dict[str, Any]:
    return values.mapping(row.get("responses_create_params")) or dict(row)


def _response(row: Mapping[str, Any]) -> dict[str, Any]:
    if "responses_create_params" not in row:
        return dict(row)
    if not isinstance(row.get("response"), dict):
        raise Undecodable("response is missing: the row is the input of a rollout, not a run")
    return values.mapping(row["response"])


def _input(asked: Mapping[str, Any]) -> list[dict[str, Any]]:
    told = asked.get("input")
    instructions = asked.get("instructions")
    first = [{"role": "system", "content": instructions}] if isinstance(instructions, str) and instructions else []
    if isinstance(told, str):
        return [*first, {"role": "user", "content": told}]
    return [*first, *chat_messages(members.listed(asked, "input"))]


def _settle(messages: list[dict[str, Any]], response: Mapping[str, Any]) -> None:
    turns = [message for message in messages if message["role"] == "assistant"]
    for turn in turns:
        turn |= {name: response.get(name) for name in ("temperature", "top_p")}
    if turns:
        last = turns[-1]
        last |= {"usage": values.mapping(response.get("usage")), "response_id": values.word(response.get("id"))}


def _ended(row: Mapping[str, Any], response: Mapping[str, Any]) -> tuple[EndReason, str]:
    if response.get("error"):
        return "crash", members.shown(response["error"])
    over = row.get("truncated") is True or row.get("agent_timed_out") is True
    return ("limit", "") if over or response.get("incomplete_details") else ("done", "")


def chat_messages(items: list[Any]) -> list[dict[str, Any]]:
    """Items as chat messages. Raises `Undecodable` for an item that is no object."""
    told = _Turns()
    for number, item in enumerate(items, 1):
        if not isinstance(item, dict):
            raise Undecodable(f"item {number} is of type {type(item).__name__}; it must be an object")
        kind = values.word(item.get("type")) or "message"
        if kind == "message" and not isinstance(item.get("role"), str):
            raise Undecodable(f"item {number} is a message without a role")
        told.take(item, kind)
    return told.messages


class _Turns:
    """The messages so far, and the turn of the model that is open (empty: none)."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self._turn: dict[str, Any] = {}

    def take(self, item: dict[str, Any], kind: str) -> None:
        """Add an item of a type."""
        if kind == "message" and item.get("role") == "assistant":
            self._open(new=bool(self._turn.get("tool_calls")) or "content" in self._turn)
            self._turn |= {"content": item.get("content"), "agent": values.word(item.get("agent"))}
        elif kind == "message":
            self._other(dict(item))
        elif kind == "reasoning":
            self._open(new=bool(self._turn.get("tool_calls")) or "content" in self._turn)
            before = self._turn.get("reasoning")
            self._turn["reasoning"] = "\n".join(filter(None, (before, _reasoning(item))))
        elif kind.endswith("_output"):
            self._other({"role": "tool", "tool_call_id": item.get("call_id"), "content": item.get("output")})
        elif kind.endswith("_call"):
            self._call(item, kind)
        else:
            self._other({"role": kind, "content": msgspec.json.encode(item).decode()})
        if self._turn:
            self._turn |= _token_ids(item)

    def _call(self, item: dict[str, Any], kind: str) -> None:
        self._open(new=False)
        identity = values.word(item.get("call_id") or item.get("id"))
        name = values.word(item.get("name")) or kind.removesuffix("_call")
        given = item.get("arguments", item.get("input"))
        if given is None:
            given = {key: value for key, value in item.items() if key not in _TOLD}
        self._turn.setdefault("tool_calls", []).append({"id": identity, "name": name, "arguments": given})
        if not item.get("call_id") and kind != "function_call":
            found = next((item[key] for key in ("output", "outputs", "results", "status") if item.get(key)), None)
            result = {"role": "tool", "tool_call_id": identity, "name": name, "content": found}
            self._other({**result, "error": item.get("error")})

    def _open(self, *, new: bool) -> None:
        if new or not self._turn:
            self._turn = {"role": "assistant"}
            self.messages.append(self._turn)

    def _other(self, message: dict[str, Any]) -> None:
        self._turn = {}
        self.messages.append(message)


def _reasoning(item: Mapping[str, Any]) -> str:
    told = item.get("content") or item.get("summary")
    return values.text_of(told)[0] if told else ""


def _token_ids(item: Mapping[str, Any]) -> dict[str, Any]:
    """The token ids that a training server puts on the last item of a turn."""
    names = {
        "prompt_token_ids": "prompt_token_ids",
        "generation_token_ids": "token_ids",
        "generation_log_probs": "logprobs",
    }
    return {ours: item[theirs] for theirs, ours in names.items() if item.get(theirs)}
