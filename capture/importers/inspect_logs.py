"""Evaluation logs of inspect_ai (``.json``): one run a sample, its scores feedback by the scorer's name.

The letters of a score are worth what inspect makes of them (C 1, P 0.5, I and N 0). Texts that a log keeps
apart as attachments are put back. An epoch is an attempt, so the epochs of a sample are one group.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from millstream import values
from millstream.capture.importers import members
from millstream.capture.importers.chat import ChatRun, Judgement
from millstream.errors import Undecodable
from millstream.events import EndReason, ToolCall

LETTERS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
_ATTACHMENT = re.compile(r"attachment://([0-9a-f]{32})")
_USAGE = {"input_tokens_cache_read": "cached_tokens"}


def is_inspect(row: Any) -> bool:
    """Whether a row is a log, or a sample of one as `samples` gives them."""
    return isinstance(row, dict) and isinstance(row.get("eval"), dict) and ("samples" in row or "sample" in row)


def samples(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The samples of a log, each with the evaluation it is of. Raises `Undecodable` when there are none."""
    found = members.listed(row, "samples")
    if not found:
        raise Undecodable("samples is empty: the log is a header without runs")
    kept = {name: row["eval"].get(name) for name in ("run_id", "task", "task_id", "model")}
    return [{"eval": kept, "sample": sample} for sample in found]


def group_key(row: Any) -> str:
    """The epochs of a sample share the task and the sample's id."""
    task, sample = values.mapping(row["eval"]), values.mapping(row.get("sample"))
    return f"{values.word(task.get('task'))}-{values.word(sample.get('id'))}"


def inspect_run(row: Mapping[str, Any], attempt: int, group_size: int) -> ChatRun:
    """The run of a sample. Raises `Undecodable`."""
    sample, evaluation = values.mapping(row["sample"]), values.mapping(row["eval"])
    texts = values.mapping(sample.get("attachments"))
    messages = [_message(number, told, texts) for number, told in enumerate(members.listed(sample, "messages"), 1)]
    output = values.mapping(sample.get("output"))
    turns = [message for message in messages if message["role"] == "assistant"]
    if turns:
        turns[-1].setdefault("usage", _usage(output))
    asked = sample.get("input")
    question = asked if isinstance(asked, str) else members.first_question(asked if isinstance(asked, list) else ())
    target = sample.get("target")
    reference = target[0] if isinstance(target, list) and len(target) == 1 else target
    reason, error = _ended(sample)
    return ChatRun(
        messages=messages,
        task=members.task(
            group_key(row),
            _restored(question, texts),
            values.word(evaluation.get("task")),
            reference,
            values.mapping(sample.get("metadata")),
        ),
        source="import:inspect",
        group=group_key(row),
        attempt=members.whole(sample.get("epoch"), attempt + 1) - 1 if sample.get("epoch") else attempt,
        group_size=group_size,
        model=values.word(output.get("model") or evaluation.get("model")),
        judgements=tuple(_judgements(sample)),
        reason=reason,
        error=error,
    )


def _message(number: int, told: Any, texts: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(told, dict) or not isinstance(told.get("role"), str):
        raise Undecodable(f"message {number} has no role; a message of a sample is a chat message")
    content, reasoning = _parted(told.get("content"))
    message = {**told, "content": _put_back(content, texts), "reasoning": _restored(reasoning, texts)}
    message["tool_calls"] = [_call(call) for call in members.listed(told, "tool_calls")]
    if told["role"] == "tool":
        error = values.mapping(told.get("error"))
        said = ": ".join(values.word(error[part]) for part in ("type", "message") if error.get(part))
        message |= {"name": told.get("function"), "error": said}
    return message


def _parted(content: Any) -> tuple[Any, str]:
    """Content without its reasoning, and the reasoning."""
    if not isinstance(content, list):
        return content, ""
    thoughts = [part for part in content if values.mapping(part).get("type") == "reasoning"]
    said = [part for part in content if part not in thoughts]
    return said, "\n".join(values.word(values.mapping(part).get("reasoning")) for part in thoughts)


def _put_back(content: Any, texts: Mapping[str, Any]) -> Any:
    text, _ = values.text_of(content)
    return _restored(text, texts) if _ATTACHMENT.search(text) else content


def _restored(text: str, texts: Mapping[str, Any]) -> str:
    return _ATTACHMENT.sub(lambda found: values.word(texts.get(found[1], found[0])), text)


def _call(told: Any) -> ToolCall:
    fields = values.mapping(told)
    name = fields.get("function")
    given = fields.get("arguments")
    if fields.get("parse_error"):
        texts = list(values.mapping(given).values())
        given = texts[0] if len(texts) == 1 and isinstance(texts[0], str) else members.shown(given)
    call = values.tool_call({**fields, "arguments": given, **({"name": name} if isinstance(name, str) else {})})
    return replace(call, malformed=call.malformed or bool(fields.get("parse_error")))


def _usage(output: Mapping[str, Any]) -> dict[str, Any]:
    return {_USAGE.get(name, name): value for name, value in values.mapping(output.get("usage")).items()}


def _ended(sample: Mapping[str, Any]) -> tuple[EndReason, str]:
    error = sample.get("error")
    if error:
        return "crash", values.word(values.mapping(error).get("message")) or members.shown(error)
    return ("limit", "") if sample.get("limit") else ("done", "")


def _judgements(sample: Mapping[str, Any]) -> Iterator[Judgement]:
    scores = values.mapping(sample.get("scores"))
    if isinstance(sample.get("score"), dict):
        scores.setdefault("score", sample["score"])
    for name, told in scores.items():
        score = values.mapping(told)
        comment = values.word(score.get("explanation"))
        parts = score.get("value")
        for part, value in parts.items() if isinstance(parts, dict) else [("", parts)]:
            worth = LETTERS.get(value) if isinstance(value, str) else values.number(_counted(value))
            label = value if isinstance(value, str) else ""
            full = f"{name}.{part}" if part else name
            yield Judgement(source="environment", name=full, value=worth, label=label, comment=comment)


def _counted(value: Any) -> Any:
    return int(value) if isinstance(value, bool) else value
