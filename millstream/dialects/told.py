"""What a span tells of an agent, whatever its dialect: the form that each dialect reads a span into."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Struct, field

from millstream import values
from millstream.dialects.messages import decoded
from millstream.events import Usage

Message: TypeAlias = dict[str, Any]
"""A chat message: role, content, tool_calls, reasoning, tool_call_id, name, finish_reason."""


class Told(Struct, frozen=True, kw_only=True):
    """``kind``: a call of a model (``given`` the messages it saw, ``gave`` those it gave), the run of a tool, of
    an agent, or something else that is known and makes no step.
    """

    kind: Literal["model", "tool", "agent", "other"]
    given: list[Message] = field(default_factory=list)
    gave: list[Message] = field(default_factory=list)
    agent: str = ""
    model: str = ""
    response_id: str = ""
    finish_reason: str = ""
    conversation: str = ""
    usage: Usage = field(default_factory=Usage)
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    sampling: dict[str, Any] = field(default_factory=dict)
    tools: tuple[dict[str, Any], ...] = ()
    tool: str = ""
    call_id: str = ""
    output: Any = None
    answer: str = ""
    piecemeal: bool = False
    """``sampling``: the other settings that shaped the answer, as the chat API names them. ``answer``: what an agent
    ended with, where no message tells it. ``piecemeal``: its messages come one by one, what came before is not known.
    """


SAMPLING: Final = (
    *("seed", "max_tokens", "max_completion_tokens", "max_output_tokens", "stop", "n"),
    *("frequency_penalty", "presence_penalty", "repetition_penalty", "tool_choice", "response_format"),
)
"""Settings of a call beside temperature, top p and top k."""


def sampling(found: Mapping[str, Any], names: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Those of the settings that are there. ``names``: what a dialect calls them, by what the chat API does."""
    named = {name: name for name in SAMPLING} if names is None else names
    told = {name: found.get(theirs) for name, theirs in named.items()}
    return {name: value for name, value in told.items() if value not in (None, "", [])}


def first(attributes: Mapping[str, Any], *names: str) -> Any:
    """The first of these attributes that is there and not empty."""
    return next((value for name in names if (value := attributes.get(name)) not in (None, "", [])), None)


def text(attributes: Mapping[str, Any], *names: str) -> str:
    """The same as text; of a list its first item."""
    value = first(attributes, *names)
    if isinstance(value, list):
        value = value[0]
    return "" if value is None else str(value)


def number(value: Any) -> float | None:
    """A finite number, also from a text."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    return values.number(value)


def whole(value: Any) -> int:
    """A count, 0 for what is none."""
    found = number(value)
    return int(found) if found is not None and 0 <= found < 2**53 else 0


def usage(attributes: Mapping[str, Any], **names: tuple[str, ...]) -> Usage:
    """Usage whose members are read from the first of their attributes that is there."""
    return msgspec.convert({ours: whole(first(attributes, *theirs)) for ours, theirs in names.items()}, Usage)


def numbered(attributes: Mapping[str, Any], prefix: str) -> list[dict[str, Any]]:
    """The objects of flat attributes ``prefix.N.member…``, in the order of N; members keep their dots."""
    found: dict[int, dict[str, Any]] = {}
    for name, value in attributes.items():
        if name.startswith(f"{prefix}."):
            place, _, member = name[len(prefix) + 1 :].partition(".")
            if place.isascii() and place.isdigit() and len(place) < 7 and member:
                found.setdefault(int(place), {})[member] = value
    return [found[place] for place in sorted(found)]


def definitions(value: Any) -> tuple[dict[str, Any], ...]:
    """Tool definitions from a list, from JSON, or from a list of JSON texts."""
    value = decoded(value)
    listed = [decoded(one) for one in value] if isinstance(value, list) else []
    return tuple(one for one in listed if isinstance(one, dict))


def without_empty(messages: Iterable[Message]) -> list[Message]:
    """Messages that say, think, call or answer something."""
    names = ("content", "tool_calls", "reasoning", "reasoning_content", "function_call", "refusal")
    return [one for one in messages if one.get("role") in ("tool", "function") or any(one.get(name) for name in names)]
