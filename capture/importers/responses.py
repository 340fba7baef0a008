"""OpenAI Responses items: NeMo Gym's rollouts, stored responses with their input, and bare lists of items.

The usage of the response stands on its last turn, its sampling settings on every turn. A response without
any item is an empty turn. `millstream.dialects.items` reads the items.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millstream import values
from millstream.capture.importers import members
from millstream.capture.importers.chat import ChatRun
from millstream.dialects.items import chat_messages
from millstream.errors import Undecodable
from millstream.events import EndReason

_NOT_METADATA = ("reward", "responses_create_params", "response", "question", "expected_answer")


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
