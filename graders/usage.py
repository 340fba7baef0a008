"""Which tool results the policy used: the shared ground of tool efficiency and reasoning depth.

A result is **used** when a later action of the policy, or the final answer, holds a word or number of it.
A result that says nothing new (what the run had shown already) counts as used, there was nothing to take up;
so does that of a tool that changes the world, whose effect was the point. Words are runs of letters, numbers
runs of digits with their decimal point; ``profit22`` is ``profit`` and ``22``.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import msgspec

from millstream.events import MessageReceived, ModelResponded, ToolCall, ToolReturned
from millstream.trajectory import Trajectory

CHANGING: Final = frozenset({
    "add", "book", "buy", "cancel", "commit", "create", "delete", "edit", "exchange", "insert", "modify", "move",
    "order", "patch", "pay", "place", "post", "put", "refund", "remove", "rename", "return", "sell", "send", "set",
    "submit", "transfer", "update", "upload", "write",
})  # fmt: skip
"""First words of the names of tools that change the state of the world."""

_WORDS = re.compile(r"[a-z]{2,}|#\d+|\d+(?:\.\d+)?")
_encode = msgspec.json.Encoder(order="sorted").encode
_FIRST_WORD = re.compile(r"[a-z]+", re.IGNORECASE)


class Use(NamedTuple):
    """One call: its action's index, its result (None when none came), and the first later action that used
    the result (the number of actions stands for the final answer; None when nothing did). ``repeated``
    marks a call made before with the same arguments, the world unchanged since.
    """

    call: ToolCall
    action: int
    result: ToolReturned | None
    used_by: int | None
    repeated: bool

    @property
    def useful(self) -> bool:
        """Returned ok, not repeated, used later."""
        return self.result is not None and not self.result.error and not self.repeated and self.used_by is not None


def words(text: str) -> frozenset[str]:
    """The words and numbers of a text."""
    return frozenset(_WORDS.findall(text.lower()))


def spoken(response: ModelResponded) -> frozenset[str]:
    """The words of an action: its text and the arguments of its calls."""
    return words("\n".join([response.text, *map(_arguments, response.tool_calls)]))


def _arguments(call: ToolCall) -> str:
    return call.arguments_raw or (_encode(call.arguments).decode() if call.arguments else "")


def uses_of(t: Trajectory, changing: frozenset[str] = CHANGING) -> list[Use]:
    """Every call of the run, in order, with what became of its result."""
    responses = t.responses
    if not any(response.tool_calls for response in responses):
        return []
    results = {e.call_id: e for e in reversed(t.events) if isinstance(e, ToolReturned)}
    actions = [*map(spoken, responses), words(t.final_answer or "")]
    said, new = _said(t, actions)
    uses: list[Use] = []
    seen: dict[tuple[str, str], int] = {}
    world = 0
    for index, response in enumerate(responses):
        for call in response.tool_calls:
            key = (call.name, _arguments(call))
            repeated = seen.get(key) == world
            result = results.get(call.id)
            changed = result is not None and not result.error and _changes(call.name, changing)
            fresh = frozenset[str]() if changed else new.get(call.id, frozenset())
            used_by = None if result is None else _used_by(said[call.id], fresh, actions, index)
            uses.append(Use(call, index, result, used_by, repeated))
            world += changed
            seen[key] = world
    return uses


def _changes(tool: str, changing: frozenset[str]) -> bool:
    first = _FIRST_WORD.match(tool)
    return tool in changing or (first is not None and first[0].lower() in changing)


def _said(t: Trajectory, actions: list[frozenset[str]]) -> tuple[dict[str, frozenset[str]], dict[str, frozenset[str]]]:
    """For each call id, the words of its result, and those among them that nothing before it had shown."""
    shown: set[str] = set()
    said: dict[str, frozenset[str]] = {}
    new: dict[str, frozenset[str]] = {}
    spoken_by = iter(actions)
    for event in t.events:
        if isinstance(event, MessageReceived):
            shown |= words(event.content)
        elif isinstance(event, ModelResponded):
            shown |= next(spoken_by)
        elif isinstance(event, ToolReturned) and event.call_id not in said:
            found = words(event.output)
            said[event.call_id], new[event.call_id] = found, found - shown
            shown |= found
    return said, new


def _used_by(said: frozenset[str], new: frozenset[str], actions: list[frozenset[str]], index: int) -> int | None:
    """The first later action that holds a word of a result; any will do for a result with nothing new."""
    later = range(index + 1, len(actions))
    return next((i for i in later if not new or not said.isdisjoint(actions[i])), None)
