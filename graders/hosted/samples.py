"""The ``sample`` namespace: what the model said, as templates and ``python`` graders see it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from millstream.trajectory import Trajectory


def sample_of(
    text: str,
    tools: Sequence[dict[str, Any]] = (),
    *,
    audio: Mapping[str, Any] | None = None,
    choices: Sequence[Any] = (),
) -> dict[str, Any]:
    """A sample with ``output_text``, ``output_tools`` (calls as in chat messages), ``choices``, ``output_json`` where
    the text is JSON, and ``output_audio`` (``data`` in Base64, ``transcript``) where the model spoke. ``choices`` are
    made of the others unless given.
    """
    calls = list(tools)
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = calls
    if audio is not None:
        message["audio"] = dict(audio)
    sample: dict[str, Any] = {
        "output_text": text,
        "output_tools": calls,
        "choices": list(choices) or [{"index": 0, "message": message}],
    }
    if audio is not None:
        sample["output_audio"] = dict(audio)
    try:
        sample["output_json"] = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return sample
    return sample


def sample_in(value: Any) -> dict[str, Any] | None:  # noqa: PLR0911 — one a shape
    """A sample from a text, a sample of the service, a completion, a message, or messages of which the last is the
    model's; None when nothing is found. Output items of Responses are messages, too.
    """
    match value:
        case str():
            return sample_of(value)
        case {"output_text": str(text)}:
            return sample_of(
                text,
                _calls(value.get("output_tools")),
                audio=_audio(value.get("output_audio")),
                choices=found if isinstance(found := value.get("choices"), list) else (),
            )
        case {"choices": [{"message": dict(message)}, *_] as choices}:
            return _of_message(message, choices)
        case {"output": list(items)}:
            return _of_items(items)
        case {"role": "assistant"}:
            return _of_message(value)
        case list():
            return _of_items(value)
    return None


def _of_message(message: Mapping[str, Any], choices: Sequence[Any] = ()) -> dict[str, Any]:
    content = message.get("content")
    parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    spoken = next((part for part in parts if part.get("type") == "output_audio"), message.get("audio"))
    text = "".join(str(part.get("text", "")) for part in parts) or (content if isinstance(content, str) else "")
    return sample_of(text, _calls(message.get("tool_calls")), audio=_audio(spoken), choices=choices)


def _of_items(items: Sequence[Any]) -> dict[str, Any] | None:
    """What the model said and called after the last item of another; texts joined, as the stock client joins them."""
    mine = list(itertools.takewhile(_by_the_model, reversed(items)))[::-1]
    said = [_of_message(item) for item in mine if item.get("role") == "assistant"]
    asked = [_call(item) for item in mine if item.get("type") == "function_call"]
    if not said and not asked:
        return None
    calls = [*(call for one in said for call in one["output_tools"]), *asked]
    audio = next((one["output_audio"] for one in reversed(said) if "output_audio" in one), None)
    return sample_of("".join(one["output_text"] for one in said), calls, audio=audio)


def _by_the_model(item: Any) -> bool:
    return isinstance(item, dict) and (
        item.get("role") == "assistant" or item.get("type") in {"function_call", "reasoning"}
    )


def _call(item: Mapping[str, Any]) -> dict[str, Any]:
    """A call of Responses as chat messages have it."""
    function = {"name": item.get("name", ""), "arguments": item.get("arguments", "")}
    return {"id": item.get("call_id", ""), "type": "function", "function": function}


def _calls(value: Any) -> list[dict[str, Any]]:
    return [call for call in value if isinstance(call, dict)] if isinstance(value, list) else []


def _audio(value: Any) -> dict[str, Any] | None:
    """What was spoken: ``data`` and ``transcript``, and whatever else its message said of it."""
    if not isinstance(value, dict) or not {"data", "transcript"} & value.keys():
        return None
    return {name: told for name, told in value.items() if name != "type"}


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
