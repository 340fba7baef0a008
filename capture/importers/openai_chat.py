"""Rows of chat runs: ``{"messages": […], …}``, a bare list of messages, and tau-bench's results.

Members of a row that are used beside ``messages``: ``task_id``, ``question``, ``reference``,
``split_key``, ``family``, ``metadata``, ``tools``, ``model``, ``reward``, ``final_answer``,
``end_reason``, ``group``, ``attempt``, ``group_size``, ``policy_version``, ``lineage``, ``split``,
``subject``. Runs that share a ``group`` (else a ``task_id``) are one group, in the order of the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from millstream import values
from millstream.capture.importers import members
from millstream.capture.importers.chat import ChatRun
from millstream.codec import digest
from millstream.errors import Undecodable
from millstream.events import EndReason, Interface, Split, Task, TaskId
from millstream.tasks import task_id, tools_hash

_TASK_FIELDS = ("question", "reference", "split_key", "family", "metadata")


def is_chat(row: Any) -> bool:
    """Whether a row is a chat run."""
    return isinstance(row, list) or (isinstance(row, dict) and isinstance(row.get("messages"), list))


def is_tau_bench(row: Any) -> bool:
    """Whether a row is a result of tau-bench."""
    return isinstance(row, dict) and isinstance(row.get("traj"), list) and "task_id" in row


def group_key(row: Any) -> str:
    """What the rows of one group share; '' for a row that is alone."""
    if not isinstance(row, dict):
        return ""
    if is_tau_bench(row):
        return str(_tau_task_id(row))
    return values.word(row.get("group")) or values.word(row.get("task_id"))


def chat_run(row: Any, attempt: int, group_size: int) -> ChatRun:
    """The run of a chat row; ``attempt`` and ``group_size`` as counted in its file, if it does not say.

    Raises `Undecodable`.
    """
    fields: Mapping[str, Any] = {"messages": row} if isinstance(row, list) else row
    tools = tuple(values.mapping(tool) for tool in members.listed(fields, "tools"))
    interface = Interface(tools=tools_hash(tools))
    messages = _told(fields, "messages")
    return ChatRun(
        messages=messages,
        task=_task(fields, messages, interface),
        source="import:openai",
        lineage=values.word(fields.get("lineage")),
        policy_version=_whole(fields, "policy_version", None),
        interface=interface,
        split=_one_of(fields, "split", get_args(Split), "train"),
        group=group_key(fields),
        attempt=_whole(fields, "attempt", attempt) or 0,
        group_size=_whole(fields, "group_size", group_size) or 1,
        tools=tools,
        model=values.word(fields.get("model")),
        subject=values.word(fields.get("subject")),
        reward=members.reward(fields),
        final_answer=None if fields.get("final_answer") is None else values.text_of(fields["final_answer"])[0],
        reason=_one_of(fields, "end_reason", get_args(EndReason), "done"),
    )


def tau_bench_run(row: Mapping[str, Any], attempt: int, group_size: int) -> ChatRun:
    """The run of a tau-bench result: its trial is the attempt, its reward the environment's feedback.

    Raises `Undecodable`.
    """
    info = values.mapping(values.mapping(row.get("info")).get("task"))
    number = _tau_task_id(row)
    question = values.word(info.get("instruction"))
    return ChatRun(
        messages=_told(row, "traj"),
        task=Task(id=number, question=question, family="tau_bench", metadata={"task_id": row.get("task_id")}),
        source="import:tau_bench",
        group=str(number),
        attempt=_whole(row, "trial", attempt) or 0,
        group_size=group_size,
        reward=members.reward(row),
    )


def _tau_task_id(row: Mapping[str, Any]) -> TaskId:
    """The number of the task, and a hash of what is asked: each domain of tau-bench counts from 0."""
    info = values.mapping(values.mapping(row.get("info")).get("task"))
    asked = digest(values.word(info.get("user_id")), values.word(info.get("instruction")))
    return TaskId(f"tau_bench-{row.get('task_id')}-{asked[:8]}")


def _task(fields: Mapping[str, Any], messages: list[Any], interface: Interface) -> Task:
    given = {name: fields[name] for name in _TASK_FIELDS if fields.get(name) is not None}
    given["metadata"] = values.mapping(given.get("metadata"))
    if fields.get("id") is not None:
        given["metadata"].setdefault("row_id", fields["id"])
    asked = []
    for message in messages:
        if isinstance(message, dict) and message.get("role") == "assistant":
            break
        asked.append((values.word(values.mapping(message).get("role")), _text(message)))
    given.setdefault("question", next((text for role, text in asked if role == "user"), ""))
    given["id"] = values.word(fields.get("task_id")) or task_id(asked, interface)
    return members.told_task(given)


def _text(message: Any) -> str:
    return values.text_of(values.mapping(message).get("content"))[0]


def _told(fields: Mapping[str, Any], name: str) -> list[Any]:
    found = members.listed(fields, name)
    if not found:
        raise Undecodable(f"{name} is empty; a run has at least one message")
    return found


def _whole(fields: Mapping[str, Any], name: str, default: int | None) -> int | None:
    value = fields.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not -(2**63) <= value < 2**63:
        raise Undecodable(f"{name} is {members.shown(value)}; it must be a whole number of 64 bits")
    return value


def _one_of(fields: Mapping[str, Any], name: str, known: tuple[str, ...], default: Any) -> Any:
    value = fields.get(name)
    if value is None:
        return default
    if value not in known:
        raise Undecodable(f"{name} is {members.shown(value)}; it must be one of {', '.join(known)}")
    return value
