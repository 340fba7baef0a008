"""Members of rows that others wrote: taken when they are what they should be, else named in an `Undecodable`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from millstream import values
from millstream.codec import digest
from millstream.errors import Undecodable
from millstream.events import Interface, Task, TaskId
from millstream.tasks import tools_hash

_LONGEST = 500
"""Characters of a text that is still a member of metadata."""


def listed(fields: Mapping[str, Any], name: str) -> list[Any]:
    """A list, empty for null or nothing. Raises `Undecodable`."""
    value = fields.get(name)
    if value is not None and not isinstance(value, list):
        raise Undecodable(f"{name} is of type {type(value).__name__}; it must be a list")
    return value or []


def whole(value: Any, default: int) -> int:
    """A whole number from 0, else the default."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else default


def reward(fields: Mapping[str, Any]) -> float | None:
    """The finite number under ``reward``, true 1 and false 0. Raises `Undecodable` for anything else."""
    value = fields.get("reward")
    if value is None:
        return None
    number = values.number(int(value) if isinstance(value, bool) else value)
    if number is None:
        raise Undecodable(f"reward is {shown(value)}; it must be a finite number")
    return number


def shown(value: Any) -> str:
    """The beginning of a value, for an error message."""
    return msgspec.json.encode(values.plain(value)).decode()[:60]


def scalars(fields: Mapping[str, Any], without: Iterable[str] = ()) -> dict[str, Any]:
    """The members that are numbers, truths or short texts: what a task's metadata keeps."""
    left_out = set(without)
    return {
        name: value
        for name, value in fields.items()
        if name not in left_out
        and (isinstance(value, bool | int | float) or (isinstance(value, str) and len(value) <= _LONGEST))
    }


def hashed(kind: str, value: Any) -> str:
    """A short name for a thing that has none: its kind and a hash of its content."""
    return f"{kind}-{digest(msgspec.json.encode(value, order='sorted'))[:16]}"


def first_question(messages: Iterable[Any]) -> str:
    """The text of the first user message."""
    for message in messages:
        fields = message if isinstance(message, dict) else {}
        if fields.get("role") == "user":
            return values.text_of(fields.get("content"))[0]
    return ""


def interface(tools: tuple[dict[str, Any], ...]) -> Interface:
    """What the policy was shown, as far as the tools tell."""
    return Interface(tools=tools_hash(tools))


def task(
    identity: str, question: str, family: str, reference: Any = None, metadata: Mapping[str, Any] | None = None
) -> Task:
    """A task; a reference that is neither text nor number is kept as JSON."""
    fields = {"id": TaskId(identity), "question": question, "family": family, "reference": reference}
    return told_task({**fields, "metadata": dict(metadata or {})})


def told_task(fields: dict[str, Any]) -> Task:
    """The task with these members. Raises `Undecodable` for one of a wrong type."""
    try:
        return values.task_of(fields)
    except msgspec.ValidationError as error:
        raise Undecodable(f"the task can't be read: {error}") from None
