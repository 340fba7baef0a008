"""Bounds at the edge: texts, strings inside JSON values, and whole events are cut to size.

A cut text keeps its head and its tail around a mark that says how much is gone; what it was before
(bytes of UTF-8, SHA-256) goes into `Truncated`. Graders and tokenizers see the cut text.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace

from millstream.events import AnyEvent, Event, MessageReceived, ModelResponded, Task, ToolCall, ToolReturned, Truncated

E = TypeVar("E", bound=Event)
_MAIN = {MessageReceived: "content", ModelResponded: "text", ToolReturned: "output"}
_OTHERS = ("reasoning", "error", "comment", "final_answer", "label", "name", "task", "tools", "sampling")
_FIXED = frozenset(
    {
        *("kind", "id", "trajectory_id", "producer", "last_seq", "truncated", "link", "flags", "usage", "interface"),
        *("role", "reason", "source", "split", "logprob_kind", "finish_reason"),
    }
)
"""Members of an encoded event that no rewriting of texts touches: identity, order, and words of closed lists."""


MARK = re.compile(r"\[… cut: (\d{1,18}) bytes in all(?:, sha256 ([0-9a-f]{64}))? …\]")
"""The mark of a text that was cut: how long it was, and where all of it lies."""
Keep: TypeAlias = Callable[[bytes], str]
"""Keeps bytes whole; the SHA-256 under which they lie, '' when they lie nowhere."""


def no_blob(_: bytes) -> str:
    """Keeps nothing."""
    return ""


def cut(text: str, max_bytes: int, length: int = 0, keep: Keep = no_blob) -> str:
    """Head and tail of a storable text in at most ``max_bytes`` bytes of UTF-8 (but never less than the mark).

    ``length``: what the mark says the text measured before any cut; 0: what it measures now. What is kept whole
    says so in the mark, as `millstream.dialects.cuts` reads it.
    """
    if len(text) * 4 <= max_bytes:
        return text
    data = text.encode()
    if len(data) <= max_bytes:
        return text
    earlier = MARK.search(text)
    length = length or (int(earlier[1]) if earlier else len(data))
    blob = (earlier[2] if earlier else keep(data)) or ""
    mark = f"\n[… cut: {length} bytes in all{f', sha256 {blob}' if blob else ''} …]\n".encode()
    room = max(0, max_bytes - len(mark))
    head, tail = data[: room - room // 2], data[len(data) - room // 2 :]
    return head.decode("utf-8", "ignore") + mark.decode() + tail.decode("utf-8", "ignore")


def measured(text: str) -> Truncated:
    """Length in bytes and SHA-256 of a storable text."""
    data = text.encode()
    return Truncated(length=len(data), sha256=hashlib.sha256(data).hexdigest())


def each_text(value: Any, change: Callable[[str], str]) -> Any:
    """A JSON value with ``change`` applied to every string, keys too, and non-finite numbers as null."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(str(key)): each_text(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [each_text(item, change) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def shallow(value: Any, levels: int) -> Any:
    """A JSON value in which what lies deeper than so many levels is a text of JSON ('' where none can be made)."""
    if not isinstance(value, dict | list | tuple):
        return value
    if not levels:
        try:
            return msgspec.json.encode(value).decode()
        except (RecursionError, UnicodeEncodeError):
            return ""
    if isinstance(value, dict):
        return {name: shallow(item, levels - 1) for name, item in value.items()}
    return [shallow(item, levels - 1) for item in value]


def rewritten(event: AnyEvent, change: Callable[[dict[str, Any]], dict[str, Any]]) -> AnyEvent:
    """The event with ``change`` applied to all its members but those that say what it is."""
    tree = msgspec.to_builtins(event)
    told = change({name: value for name, value in tree.items() if name not in _FIXED})
    made: AnyEvent = msgspec.convert(tree | told, type(event))
    return made


def measured_main(event: AnyEvent, max_bytes: int) -> Truncated | None:
    """What the main text of an event measures, if it is longer than may be."""
    name = _MAIN.get(type(event))
    text = getattr(event, name) if name else ""
    return measured(text) if len(text) * 4 > max_bytes and len(text.encode()) > max_bytes else None


def bound_texts(event: AnyEvent, max_bytes: int, keep: Keep = no_blob, was: Truncated | None = None) -> AnyEvent:
    """The event with every long text cut; the main text's `Truncated` is set (``was``: what it measured before it
    was redacted), the others are flagged. ``keep`` keeps them whole.
    """
    main = _MAIN.get(type(event))
    if main is not None:
        event = _cut_main(event, main, max_bytes, keep, was)
    if isinstance(event, ModelResponded):
        event = _cut_calls(event, max_bytes, keep)
    short: AnyEvent = _cut_others(event, max_bytes, keep)
    return short


def _cut_main(event: Any, name: str, max_bytes: int, keep: Keep, was: Truncated | None) -> Any:
    text = getattr(event, name)
    short = cut(text, max_bytes, event.truncated.length if event.truncated else 0)
    if short is text:
        return event
    known = event.truncated or was or measured(text)
    blob = known.blob or keep(text.encode())
    return flagged(replace(event, **{name: short}, truncated=replace(known, blob=blob)), "truncated")


def _cut_calls(event: ModelResponded, max_bytes: int, keep: Keep) -> ModelResponded:
    calls = tuple(_cut_call(call, max_bytes, keep) for call in event.tool_calls)
    if calls == event.tool_calls:
        return event
    return flagged(replace(event, tool_calls=calls), "arguments_cut")


def _cut_call(call: ToolCall, max_bytes: int, keep: Keep) -> ToolCall:
    return replace(
        call,
        arguments=each_text(call.arguments, lambda text: cut(text, max_bytes, keep=keep)),
        arguments_raw=cut(call.arguments_raw, max_bytes, keep=keep),
    )


def _cut_others(event: Any, max_bytes: int, keep: Keep) -> Any:
    def changed(value: Any) -> Any:
        if isinstance(value, Task):
            parts = {name: changed(getattr(value, name)) for name in ("question", "reference", "metadata")}
            return replace(value, **parts)
        return type(value)(each_text(value, lambda text: cut(text, max_bytes, keep=keep))) if value else value

    for name in _OTHERS:
        value = getattr(event, name, None)
        if value and (short := changed(value)) != value:
            event = flagged(replace(event, **{name: short}), f"{name}_cut")
    return event


def flagged(event: E, *flags: str) -> E:
    """The event with flags added, each once."""
    new = [flag for flag in dict.fromkeys(flags) if flag not in event.flags]
    return replace(event, flags=(*event.flags, *new)) if new else event
