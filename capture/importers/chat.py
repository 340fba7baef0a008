"""OpenAI chat messages as events.

``content`` null is '' and lists of parts are their texts; calls without a result and results without
a call stay. A call id that a run uses twice (providers do) gets ``#2`` so that each call keeps its own
result; the flag ``call_id_reused`` says so. Other formats are read into the same messages, with ``agent``,
``time_ns``, ``error`` (of a tool), ``response_id``, sampling settings and token ids where they tell them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct, field
from msgspec.structs import asdict

from millstream import values
from millstream.capture.calls import Calls
from millstream.codec import digest
from millstream.errors import Undecodable
from millstream.events import (
    AnyEvent,
    EndReason,
    EventId,
    FeedbackGiven,
    FeedbackSource,
    Interface,
    MessageReceived,
    ModelResponded,
    Split,
    Task,
    ToolReturned,
    TrajectoryEnded,
    TrajectoryId,
    TrajectoryStarted,
)

PRODUCER = "import"
_TOKENS = ("prompt_token_ids", "token_ids", "logprobs")
_Tokens = tuple[tuple[int, ...] | None, tuple[int, ...] | None, tuple[float, ...] | None]
_ROLES = {"system": "system", "developer": "system", "user": "user"}


class Judgement(Struct, frozen=True, kw_only=True):
    """What somebody or something said of a run, or of the step with ``response_id``."""

    source: FeedbackSource
    name: str = ""
    value: float | None = None
    label: str = ""
    comment: str = ""
    response_id: str = ""


class ChatRun(Struct, kw_only=True):
    """One run as a row tells it."""

    messages: list[Any]
    task: Task
    source: str
    lineage: str = ""
    policy_version: int | None = None
    interface: Interface = field(default_factory=Interface)
    split: Split = "train"
    group: str = ""
    attempt: int = 0
    group_size: int = 1
    tools: tuple[dict[str, Any], ...] = ()
    model: str = ""
    subject: str = ""
    reward: float | None = None
    judgements: tuple[Judgement, ...] = ()
    final_answer: str | None = None
    reason: EndReason = "done"
    error: str = ""
    flags: tuple[str, ...] = ()


def events(run: ChatRun, trajectory_id: TrajectoryId) -> list[AnyEvent]:
    """All events of a run, the end last but for the feedback. Raises `Undecodable` for messages that are none."""
    told: list[AnyEvent] = [
        TrajectoryStarted(
            **_envelope(trajectory_id, 0),
            task=run.task,
            lineage=run.lineage,
            policy_version=run.policy_version,
            interface=run.interface,
            split=run.split,
            group=run.group,
            attempt=run.attempt,
            group_size=run.group_size,
            tools=run.tools,
            subject=run.subject,
            source=run.source,
            flags=run.flags,
        )
    ]
    for fields in _messages(run):
        told.append(fields.pop("event")(**_envelope(trajectory_id, len(told)), **fields))
    answer = run.final_answer
    if answer is None:
        answer = next((e.text for e in reversed(told) if isinstance(e, ModelResponded) and e.text), None)
    last = {PRODUCER: len(told)}
    envelope = _envelope(trajectory_id, len(told))
    told.append(TrajectoryEnded(**envelope, reason=run.reason, final_answer=answer, last_seq=last, error=run.error))
    return [*told, *_feedback(run, trajectory_id)]


def _feedback(run: ChatRun, trajectory_id: TrajectoryId) -> Iterator[FeedbackGiven]:
    if run.reward is not None:
        envelope = _envelope(trajectory_id, None, "feedback")
        yield FeedbackGiven(**envelope, source="environment", value=run.reward, subject=run.subject)
    for number, said in enumerate(run.judgements):
        envelope = _envelope(trajectory_id, None, "judgement", number)
        yield FeedbackGiven(**envelope, **asdict(said), subject=run.subject)


def _envelope(trajectory_id: TrajectoryId, seq: int | None, *part: str | int) -> dict[str, Any]:
    event_id = EventId(digest("imported event", trajectory_id, *(part or (seq or 0,))))
    return {"id": event_id, "trajectory_id": trajectory_id, "producer": PRODUCER, "seq": seq}


def _messages(run: ChatRun) -> Iterator[dict[str, Any]]:
    calls = Calls()
    for number, message in enumerate(run.messages, 1):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise Undecodable(f"message {number} has no role; a chat message is an object with role and content")
        yield {**_message(message, calls, run), **_origin(message)}


def _origin(message: Mapping[str, Any]) -> dict[str, Any]:
    time_ns = message.get("time_ns")
    known = isinstance(time_ns, int) and abs(time_ns) < 2**63
    return {"agent": values.word(message.get("agent")), "time_ns": time_ns if known else 0}


def _message(message: Mapping[str, Any], calls: Calls, run: ChatRun) -> dict[str, Any]:
    text, flags = values.text_of(message.get("content"))
    role, name = message["role"], values.word(message.get("name"))
    if role == "assistant":
        return _response(message, text, flags, calls, run.model)
    if role in ("tool", "function"):
        told = values.word(message.get("tool_call_id"))
        asked, doubts = calls.answered(told, name)
        call_id = told if asked is None else asked.call.id
        error = values.text_of(message.get("error"))[0]
        fields = {"call_id": call_id, "name": name, "output": text, "error": error, "flags": flags + doubts}
        return {"event": ToolReturned, **fields}
    name = name or ("" if role in _ROLES else role)
    return {"event": MessageReceived, "role": _ROLES.get(role, "agent"), "content": text, "name": name, "flags": flags}


def _response(
    message: Mapping[str, Any], text: str, flags: tuple[str, ...], calls: Calls, model: str
) -> dict[str, Any]:
    asked = message.get("tool_calls") or []
    if not isinstance(asked, list):
        raise Undecodable(f"tool_calls is of type {type(asked).__name__}; it must be a list")
    asked = list(asked)
    if isinstance(message.get("function_call"), dict):
        asked.append({"function": message["function_call"]})
    made = [calls.asked(call) for call in values.tool_calls(asked)]
    reused = ("call_id_reused",) if any(again for _, again in made) else ()
    tokens, doubts = _tokens(message)
    return {
        "event": ModelResponded,
        "text": text or values.word(message.get("refusal")),
        "reasoning": values.word(message.get("reasoning_content") or message.get("reasoning")),
        "tool_calls": tuple(call for call, _ in made),
        "usage": values.usage_of(message.get("usage")),
        "finish_reason": values.word(message.get("finish_reason")),
        "model": values.word(message.get("model")) or model,
        "response_id": values.word(message.get("response_id")),
        "temperature": values.number(message.get("temperature")),
        "top_p": values.number(message.get("top_p")),
        "flags": flags + reused + doubts,
        **tokens,
    }


def _tokens(message: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    try:
        prompt, ids, found = msgspec.convert([message.get(name) for name in _TOKENS], _Tokens)
    except msgspec.ValidationError as error:
        raise Undecodable(f"{', '.join(_TOKENS)}: {error}; they are lists of whole numbers and of numbers") from None
    log_probs, doubts = values.usable_log_probs(ids, found)
    return {"prompt_token_ids": prompt, "token_ids": ids, "logprobs": log_probs}, doubts
