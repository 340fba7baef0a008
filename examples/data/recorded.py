"""The attempts as they were recorded on the way: a cassette of calls, the second one streamed, and a run state of the
OpenAI Agents SDK.
"""

from __future__ import annotations

from typing import Any

import msgspec

from millstream.examples.data.cases import TOOL, Attempt, Case
from millstream.examples.data.others import chat_of

_URI = "https://api.openai.com/v1/chat/completions"


def cassette(case: Case, number: int, attempt: Attempt) -> dict[str, Any]:
    """Two calls of a model: the one that asks the calculator, and the one that answers, which was streamed."""
    system, user, asked, result, answer = chat_of(case, number, attempt)
    common = {"model": "example", "temperature": 0.0, "tools": [TOOL]}
    first: dict[str, Any] = {**common, "messages": [system, user]}
    second = {**common, "messages": [system, user, asked, result], "stream": True}
    usage = {"prompt_tokens": 128, "completion_tokens": 12}
    said: dict[str, Any] = {"message": asked, "finish_reason": "tool_calls", "index": 0}
    whole: dict[str, Any] = {
        "id": f"chatcmpl-{case.id}-0",
        "object": "chat.completion",
        "choices": [said],
        "usage": usage,
    }
    return {
        "interactions": [_call(first, _json(whole)), _call(second, _streamed(case, answer["content"], usage))],
        "version": 1,
    }


def _call(body: dict[str, Any], answer: str) -> dict[str, Any]:
    request = {"body": _json(body), "headers": {"content-type": ["application/json"]}, "method": "POST", "uri": _URI}
    return {"request": request, "response": {"body": {"string": answer}, "status": {"code": 200, "message": "OK"}}}


def _streamed(case: Case, text: str, usage: dict[str, int]) -> str:
    head = {"id": f"chatcmpl-{case.id}-1", "object": "chat.completion.chunk", "model": "example"}
    middle = len(text) // 2
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": text[:middle]}, {"content": text[middle:]}]
    chunks: list[dict[str, Any]] = [
        {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas
    ]
    chunks.append({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    chunks.append({**head, "choices": [], "usage": usage})
    return "".join(f"data: {_json(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"


def run_state(case: Case, number: int, attempt: Attempt) -> dict[str, Any]:
    """A run that is over, as ``RunState.to_json`` tells it."""
    _, user, asked, result, answer = chat_of(case, number, attempt)
    call = asked["tool_calls"][0]
    agent = {"agent": {"name": "larkspur"}}
    asks = {"type": "function_call", "call_id": call["id"], **call["function"]}
    gave = {"type": "function_call_output", "call_id": call["id"], "output": result["content"]}
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": answer["content"]}]}
    usage = {"input_tokens": 128, "output_tokens": 12, "input_tokens_details": [{"cached_tokens": 100}]}
    return {
        "$schemaVersion": "1.17",
        "current_agent": {"name": "larkspur"},
        "current_step": {"type": "next_step_final_output", "data": {"output": answer["content"]}},
        "current_turn": 2,
        "max_turns": 10,
        "original_input": user["content"],
        "generated_items": [
            {"type": "tool_call_item", "raw_item": asks, **agent},
            {"type": "tool_call_output_item", "raw_item": gave, "output": result["content"], **agent},
            {"type": "message_output_item", "raw_item": said, **agent},
        ],
        "session_items": [],
        "model_responses": [
            {"output": [asks], "response_id": f"resp_{case.id}_1", "usage": usage},
            {"output": [said], "response_id": f"resp_{case.id}_2", "usage": usage},
        ],
        "context": {"usage": usage, "context": {}},
        "trace": {"workflow_name": "larkspur"},
    }


def as_yaml(value: Any, indent: int = 0) -> str:
    """A document as the recorder writes it: objects and lists in blocks, texts in quotes."""
    space = "  " * indent
    if isinstance(value, dict):
        return "".join(f"{space}{key}:{_below(one, indent)}" for key, one in value.items())
    return "".join(f"{space}- {(_below(one, indent)).lstrip()}" for one in value)


def _below(value: Any, indent: int) -> str:
    if isinstance(value, dict | list):
        return "\n" + as_yaml(value, indent + 1)
    return f" {_json(str(value))}\n"


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
