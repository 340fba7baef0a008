"""Langfuse exports: ``{trace, observations}``, one run a trace.

Observations come in any order. Model calls are the generations; of generations inside each other, which tell
one call twice, the one that tells most stands. They follow each other by their start, whatever the clock of
their parents says, and what a call was given and earlier calls told already is not told again. A tool's
result is taken from the next call's messages, else from the tool's observation. An observation whose parent
is not in the file is a root (flag ``orphan_span``). The response id of a call is the id of its observation,
so a score of an observation is feedback for that call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from millstream import values
from millstream.capture.importers import members
from millstream.capture.importers.chat import ChatRun, Judgement
from millstream.capture.importers.langfuse_spans import Call, Span, calls, spans
from millstream.dialects.messages import decoded, result_text
from millstream.errors import Undecodable

_USAGE = {
    "input": "input_tokens",
    "output": "output_tokens",
    "prompt_details.cache_read": "cached_tokens",
    "input_cached_tokens": "cached_tokens",
    "completion_details.reasoning": "reasoning_tokens",
    "output_reasoning_tokens": "reasoning_tokens",
}


def is_langfuse(row: Any) -> bool:
    """Whether a row is an export of a trace."""
    return isinstance(row, dict) and isinstance(row.get("trace"), dict) and isinstance(row.get("observations"), list)


def langfuse_run(row: Mapping[str, Any], attempt: int, group_size: int) -> ChatRun:
    """The run of a trace; without model calls it has no messages. Raises `Undecodable`."""
    trace = values.mapping(row["trace"])
    if any(not isinstance(told, dict) or not told.get("id") for told in row["observations"]):
        raise Undecodable("an observation has no id; each is an object with id and type")
    found = spans(row["observations"])
    made = calls(found)
    messages = _conversation(made)
    _answer(messages, sorted(found.values(), key=Span.order))
    orphans = any(span.parent and span.parent not in found for span in found.values())
    kept = {name: trace.get(name) for name in ("id", "name", "sessionId", "release", "version") if trace.get(name)}
    question = members.first_question(messages)
    failed = next((span for span in found.values() if not span.parent and span.failure), None)
    tools = next((call.tools for call in made if call.tools), ())
    return ChatRun(
        messages=messages,
        interface=members.interface(tools),
        tools=tools,
        task=members.task(members.hashed("langfuse", question), question, "langfuse", None, kept),
        source="import:langfuse",
        attempt=attempt,
        group_size=group_size,
        model=made[0].model if made else "",
        subject=values.word(trace.get("userId")),
        judgements=tuple(_judgements(trace)),
        reason="crash" if failed else "done",
        error=failed.failure if failed else "",
        flags=("orphan_span",) if orphans else (),
    )


def _conversation(made: list[Call]) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = []
    known: Counter[str] = Counter()
    for call in made:
        here: Counter[str] = Counter()
        for message in call.given:
            key = _key(message)
            here[key] += 1
            if here[key] > known[key]:
                known[key] += 1
                told.append({**_addressed(message, told), "agent": call.agent})
        for message in call.gave:
            known[_key(message)] += 1
            told.append({**message, "agent": call.agent, **_settings(call.span)})
    return told


def _addressed(message: dict[str, Any], told: list[dict[str, Any]]) -> dict[str, Any]:
    """A tool's message that names no call answers the first call that none answers."""
    if message["role"] != "tool" or message.get("tool_call_id") or message.get("name"):
        return message
    answered = {_answers(before) for before in told if before["role"] == "tool"}
    asked = [call for before in told for call in values.tool_calls(before.get("tool_calls"))]
    call = next((call for call in asked if call.id and call.id not in answered), None)
    return {**message, "tool_call_id": call.id, "name": call.name} if call else message


def _key(message: Mapping[str, Any]) -> str:
    """What makes two tellings of a message the same: its role, its text and what it calls."""
    text = values.text_of(message.get("content"))[0].strip()
    asked = [(call.name, call.arguments) for call in values.tool_calls(message.get("tool_calls"))]
    return members.hashed("message", [message.get("role"), text, values.plain(asked)])


def _settings(span: Span) -> dict[str, Any]:
    used = values.mapping(span.fields.get("usageDetails"))
    usage = {ours: used[theirs] for theirs, ours in _USAGE.items() if theirs in used}
    chosen = values.mapping(span.fields.get("modelParameters"))
    return {
        "usage": {**usage, "cost": span.fields.get("totalCost")},
        "model": values.word(span.fields.get("model")),
        "response_id": span.id,
        "time_ns": nanoseconds(span.fields.get("endTime")),
        "temperature": _decimal(chosen.get("temperature")),
        "top_p": _decimal(chosen.get("top_p")),
    }


def nanoseconds(value: Any) -> int:
    """An ISO time since the epoch; 0 for what is none."""
    try:
        moment = datetime.fromisoformat(values.word(value))
        return int(moment.timestamp() * 1000) * 1_000_000 if moment.tzinfo else 0
    except (ValueError, OverflowError):
        return 0


def _decimal(value: Any) -> float | None:
    try:
        return values.number(float(value)) if isinstance(value, str) else values.number(value)
    except ValueError:
        return None


def _answer(messages: list[dict[str, Any]], found: list[Span]) -> None:
    """Put the results of tool observations after the calls that no message answers."""
    answered = Counter(_answers(message) for message in messages if message["role"] == "tool")
    tools = [span for span in found if span.kind != "GENERATION"]
    for place in range(len(messages) - 1, -1, -1):
        if messages[place]["role"] != "assistant":
            continue
        for call in reversed(values.tool_calls(messages[place].get("tool_calls"))):
            if answered[call.id] > 0 or (not call.id and answered[""] > 0):
                answered[call.id] -= 1
                continue
            span = next((span for span in reversed(tools) if span.name.split()[-1:] == [call.name]), None)
            if span:
                tools.remove(span)
                messages.insert(place + 1, _result(span, call.id, call.name))


def _answers(message: Mapping[str, Any]) -> str:
    return values.word(message.get("tool_call_id"))


def _result(span: Span, call_id: str, name: str) -> dict[str, Any]:
    output = span.fields.get("output")
    inside = decoded(output)
    output = result_text(inside if isinstance(inside, str) else output)
    told = {"role": "tool", "tool_call_id": call_id, "name": name, "content": output, "error": span.failure}
    return {**told, "time_ns": nanoseconds(span.fields.get("endTime"))}


def _judgements(trace: Mapping[str, Any]) -> Iterator[Judgement]:
    for told in members.listed(trace, "scores"):
        score = values.mapping(told)
        yield Judgement(
            source="human" if score.get("source") == "ANNOTATION" else "environment",
            name=values.word(score.get("name")),
            value=values.number(score.get("value")),
            label=values.word(score.get("stringValue")),
            comment=values.word(score.get("comment")),
            response_id=values.word(score.get("observationId")),
        )
