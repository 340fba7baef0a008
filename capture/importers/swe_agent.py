"""SWE-agent's trajectories (``.traj``): the history that the model saw, and how the run ended.

An agent without tool calls acts in its text and is answered by a user message; both stay what they were,
since a policy learns to answer exactly what it was shown. A demonstration is no action of the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millstream import values
from millstream.capture.importers import members
from millstream.capture.importers.chat import ChatRun
from millstream.errors import Undecodable
from millstream.events import EndReason
from millstream.repair import parsed

_CRASHES = ("error", "environment", "api", "exception")
_LIMITS = ("cost", "context", "limit", "format", "timeout")


def is_swe_agent(row: Any) -> bool:
    """Whether a row is a trajectory of SWE-agent."""
    if not isinstance(row, dict) or not isinstance(row.get("history"), list):
        return False
    first = values.mapping(next(iter(row["history"]), None)) if row["history"] else {}
    return "trajectory" in row or ("role" in first and ("agent" in first or "message_type" in first))


def swe_agent_run(row: Mapping[str, Any], attempt: int, group_size: int) -> ChatRun:
    """The run of a trajectory; the submission is its answer. Raises `Undecodable`."""
    messages = [_message(number, told) for number, told in enumerate(members.listed(row, "history"), 1)]
    if not messages:
        raise Undecodable("history is empty; a run has at least one message")
    info, replay = values.mapping(row.get("info")), _replayed(row.get("replay_config"))
    problem = values.mapping(replay.get("problem_statement"))
    question = values.word(problem.get("text")) or members.first_question(messages)
    kept = {
        "environment": values.word(row.get("environment")),
        "exit_status": values.word(info.get("exit_status")),
        **values.mapping(info.get("model_stats")),
    }
    submission = info.get("submission")
    reason = _ended(kept["exit_status"])
    return ChatRun(
        messages=messages,
        task=members.task(task_key(row), question, "swe_agent", None, {k: v for k, v in kept.items() if v != ""}),
        source="import:swe-agent",
        group=task_key(row),
        attempt=attempt,
        group_size=group_size,
        model=values.word(values.mapping(values.mapping(replay.get("agent")).get("model")).get("name")),
        final_answer=None if submission is None else values.text_of(submission)[0],
        reason=reason,
        error=kept["exit_status"] if reason == "crash" else "",
    )


def task_key(row: Any) -> str:
    """The name of the problem, else a hash of what the first user message asks."""
    replay = _replayed(values.mapping(row).get("replay_config"))
    named = values.word(values.mapping(replay.get("problem_statement")).get("id"))
    history = values.mapping(row).get("history")
    return named or members.hashed("swe_agent", members.first_question(history if isinstance(history, list) else ()))


def _replayed(value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        try:
            value, _ = parsed(value)
        except (ValueError, RecursionError):
            return {}
    return values.mapping(value)


def _message(number: int, told: Any) -> dict[str, Any]:
    if not isinstance(told, dict) or not isinstance(told.get("role"), str):
        raise Undecodable(f"history {number} has no role; an entry is a chat message")
    message = dict(told)
    if message.get("is_demo") is True:
        return {**message, "role": "demonstration", "tool_calls": None}
    ids = message.get("tool_call_ids")
    if isinstance(ids, list) and ids:
        message.setdefault("tool_call_id", ids[0])
    thoughts = [values.word(values.mapping(block).get("thinking")) for block in members.listed(told, "thinking_blocks")]
    return {**message, "reasoning": "\n".join(filter(None, thoughts))} if thoughts else message


def _ended(status: str) -> EndReason:
    """``submitted (exit_cost)`` ran into a limit though it submitted; nothing known is done."""
    if any(word in status for word in _LIMITS):
        return "limit"
    return "crash" if any(word in status for word in _CRASHES) else "done"
