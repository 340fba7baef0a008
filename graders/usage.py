"""Which tool results the policy used: the shared ground of tool efficiency and reasoning depth.

A result is **used** when a later action of the policy, or the final answer, holds a word or number of it.
A result that says nothing new (``ok``, or what the run had shown already) counts as used: there was nothing
to take up. Words are runs of letters, numbers runs of digits with their decimal point; ``profit22`` is
``profit`` and ``22``.
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

_WORDS = re.compile(r"[a-z]{2,}|#\d+|\d+(?:\.\d+)?", re.IGNORECASE)
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
    return frozenset(word.lower() for word in _WORDS.findall(text))


def spoken(response: ModelResponded) -> frozenset[str]:
    """The words of an action: its text and its calls."""
    text = response.text
    for call in response.tool_calls:
        arguments = call.arguments_raw or (msgspec.json.encode(call.arguments).decode() if call.arguments else "")
        text = f"{text} {call.name} {arguments}"
    return words(text)


def uses_of(t: Trajectory, changing: frozenset[str] = CHANGING) -> list[Use]:
    """Every call of the run, in order, with what became of its result."""
    results = {e.call_id: e for e in reversed(t.events) if isinstance(e, ToolReturned)}
    actions = [spoken(response) for response in t.responses]
    actions.append(words(t.final_answer or ""))
    new = _new_words(t)
    uses: list[Use] = []
    seen: dict[tuple[str, bytes], int] = {}
    world = 0
    for index, response in enumerate(t.responses):
        for call in response.tool_calls:
            key = (call.name, call.arguments_raw.encode() or msgspec.json.encode(call.arguments, order="sorted"))
            repeated = seen.get(key) == world
            result = results.get(call.id)
            used_by = None if result is None else _used_by(result, new.get(call.id), actions, index)
            uses.append(Use(call, index, result, used_by, repeated))
            seen[key] = world
            if result is not None and not result.error and _changes(call.name, changing):
                world += 1
                seen[key] = world
    return uses


def _changes(tool: str, changing: frozenset[str]) -> bool:
    first = _FIRST_WORD.match(tool)
    return tool in changing or (first is not None and first[0].lower() in changing)


def _new_words(t: Trajectory) -> dict[str, frozenset[str]]:
    """For each call id, the words of its result that nothing before it had shown."""
    shown: set[str] = set()
    new: dict[str, frozenset[str]] = {}
    for event in t.events:
        if isinstance(event, MessageReceived):
            shown |= words(event.content)
        elif isinstance(event, ModelResponded):
            shown |= spoken(event)
        elif isinstance(event, ToolReturned):
            said = words(event.output)
            new.setdefault(event.call_id, said - shown)
            shown |= said
    return new


def _used_by(result: ToolReturned, new: frozenset[str] | None, actions: list[frozenset[str]], index: int) -> int | None:
    later = range(index + 1, len(actions))
    if not new:
        return next(iter(later))
    said = words(result.output)
    return next((i for i in later if actions[i] & said), None)
