"""Logs of failed multi-agent runs with the step that people found to be the wrong one (Who&When).

Every entry is an action of the agent that its ``name`` (else its ``role``) names; ``Orchestrator (thought)``
is reasoning of the Orchestrator, a person's or a terminal's entry is what the agents were told. Entry n has
the response id ``step-n``, and the label of the wrong step is feedback with that response id.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from millstream import values
from millstream.capture.importers import members
from millstream.capture.importers.chat import ChatRun, Judgement
from millstream.errors import Undecodable

_NOT_METADATA = (
    "question",
    "question_ID",
    "ground_truth",
    "is_correct",
    "is_corrected",
    "mistake_agent",
    "mistake_step",
    "mistake_reason",
)
_TOLD_BY = {"human": "user", "user": "user", "computer_terminal": "agent"}


def is_who_and_when(row: Any) -> bool:
    """Whether a row is such a log."""
    return isinstance(row, dict) and isinstance(row.get("history"), list) and "mistake_step" in row


def who_and_when_run(row: Mapping[str, Any], attempt: int, group_size: int) -> ChatRun:
    """The run of a log. Raises `Undecodable`."""
    history = members.listed(row, "history")
    if not history:
        raise Undecodable("history is empty; a log has at least one entry")
    question = values.word(row.get("question"))
    named = values.word(row.get("question_ID")).strip()
    kept = members.scalars(row, _NOT_METADATA)
    correct = row.get("is_correct", row.get("is_corrected"))
    return ChatRun(
        messages=[*_instructions(row), *(_entry(number, told) for number, told in enumerate(history))],
        task=members.task(
            named or members.hashed("who_and_when", question), question, "who_and_when", row.get("ground_truth"), kept
        ),
        source="import:who-and-when",
        attempt=attempt,
        group_size=group_size,
        reward=float(correct) if isinstance(correct, bool) else None,
        judgements=tuple(_judgement(row, history)),
    )


def _instructions(row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for agent, text in values.mapping(row.get("system_prompt")).items():
        yield {"role": "system", "content": text, "name": agent, "agent": agent}


def _entry(number: int, told: Any) -> dict[str, Any]:
    if not isinstance(told, dict) or not (told.get("name") or told.get("role")):
        raise Undecodable(f"history {number} names no agent; an entry has a name or a role")
    agent, aside = _agent(told)
    role = _TOLD_BY.get(agent.lower())
    if role:
        return {"role": role, "content": told.get("content"), "name": agent}
    text = values.text_of(told.get("content"))[0]
    shown = {"reasoning": text} if aside == "thought" else {"content": text}
    return {"role": "assistant", "agent": agent, "response_id": _step(number), **shown}


def _agent(told: Mapping[str, Any]) -> tuple[str, str]:
    """The agent and what stands in brackets after it."""
    agent, _, aside = (values.word(told.get("name")) or values.word(told.get("role"))).partition(" (")
    return agent, aside.removesuffix(")")


def _step(number: int) -> str:
    return f"step-{number}"


def _judgement(row: Mapping[str, Any], history: list[Any]) -> Iterator[Judgement]:
    told = values.word(row.get("mistake_step")).strip()
    if not told:
        return
    if not told.isdecimal() or int(told) >= len(history):
        raise Undecodable(f"mistake_step is {told[:60]!r}; it must be the number of one of {len(history)} entries")
    agent = values.word(row.get("mistake_agent"))
    comment = values.word(row.get("mistake_reason"))
    yield Judgement(source="human", name="mistake", label=agent, comment=comment, response_id=_step(int(told)))
