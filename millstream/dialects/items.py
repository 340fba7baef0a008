"""OpenAI Responses items as chat messages.

A model's turn is told as several items (reasoning, messages, calls). A new turn begins after anything that
is not the model's, with reasoning after a message or a call, and with a message after a call or a message.
A call that the provider ran itself has no ``call_id``; what it found is its result. An item of another type
is kept as a message under the name of its type.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from millstream import values
from millstream.errors import Undecodable

_ITEMS = ("message", "reasoning", "function_call", "function_call_output", "custom_tool_call", "computer_call")
_TOLD = ("type", "id", "call_id", "name", "status", "arguments", "input", "output", "outputs", "results", "error")


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
