"""The ``sample`` namespace: what the model said, as templates and ``python`` graders see it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from millstream.trajectory import Trajectory


def sample_of(text: str, tools: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    """A sample with ``output_text``, ``output_tools`` (calls as in chat messages), ``choices``, and
    ``output_json`` where the text is JSON.
    """
    calls = list(tools)
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = calls
    sample: dict[str, Any] = {
        "output_text": text,
        "output_tools": calls,
        "choices": [{"index": 0, "message": message}],
    }
    try:
        sample["output_json"] = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return sample
    return sample


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def sample_of_run(t: Trajectory) -> dict[str, Any]:
    """The sample of a run: its final answer (empty when there is none) and every tool call, in order."""
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {
                "name": call.name,
                "arguments": call.arguments_raw if call.arguments is None else json.dumps(call.arguments),
            },
        }
        for response in t.responses
        for call in response.tool_calls
    ]
    return sample_of(t.final_answer or "", calls)


def item_of_run(t: Trajectory) -> dict[str, Any]:
    """The item of a run: its task's metadata, and ``question``, ``reference`` (also as ``reference_answer``)
    and ``task_id`` where the metadata has none of that name.
    """
    known: dict[str, Any] = {"task_id": t.task.id, "question": t.task.question}
    if t.task.reference is not None:
        known |= {"reference": t.task.reference, "reference_answer": t.task.reference}
    return {**known, **t.task.metadata}
