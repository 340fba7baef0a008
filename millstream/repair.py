"""Repair: what is unusual but usable becomes a sound event, with a flag that says what was done.

Flags: ``non_finite`` (NaN or Infinity became null), ``surrogate_replaced`` (half an emoji became
U+FFFD), ``truncated`` (a long text was cut to its head and tail; length and hash are kept beside it).
"""

from __future__ import annotations

import json
import math
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from millstream.errors import TooLarge, Undecodable, UnknownSchema
from millstream.events import (
    EVENT_KINDS,
    SCHEMA,
    AnyEvent,
    Event,
    MessageReceived,
    ModelResponded,
    ToolReturned,
    Truncated,
)
from millstream.ndjson import UNREADABLE
from millstream.upcast import upcast

MAX_TEXT_BYTES = 65_536
"""What a text is cut to when its event is over the limit."""

MAX_EVENT_BYTES = 1_000_000
"""The hard limit of one event's line; a longer one has its texts cut."""

MAX_LINE_BYTES = 64_000_000
"""Lines over this are not even parsed."""

_LONG_TEXTS: dict[type, tuple[str, ...]] = {
    ToolReturned: ("output", "error"),
    ModelResponded: ("text", "reasoning"),
    MessageReceived: ("content",),
}


class Arguments(NamedTuple):
    """A tool call's arguments: an object, or None and the text that is none (``malformed``)."""

    arguments: dict[str, Any] | None
    raw: str
    malformed: bool


class _Cleaner:
    """Walks a parsed value and collects the flags of what it mended."""

    def __init__(self) -> None:
        self.flags: set[str] = set()

    def constant(self, _: str) -> None:
        """NaN, Infinity or -Infinity as a literal."""
        self.flags.add("non_finite")

    def number(self, text: str) -> float | None:
        """A float; one that overflows to infinity becomes null."""
        value = float(text)
        if math.isfinite(value):
            return value
        self.flags.add("non_finite")
        return None

    def text(self, text: str) -> str:
        """Text without lone surrogates; a pair written as two escapes is joined."""
        if text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text):
            return text
        self.flags.add("surrogate_replaced")
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")

    def clean(self, value: Any) -> Any:
        """The value with every text and float in it sound."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(str(key)): self.clean(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.clean(item) for item in value]
        if isinstance(value, float) and not math.isfinite(value):
            self.flags.add("non_finite")
            return None
        return value


def sound(value: Any) -> tuple[Any, tuple[str, ...]]:
    """A JSON value without non-finite floats and lone surrogates, and the flags of what was mended."""
    cleaner = _Cleaner()
    return cleaner.clean(value), tuple(sorted(cleaner.flags))


def parsed(data: str | bytes) -> tuple[Any, tuple[str, ...]]:
    """A JSON value as others write it, and the flags of what was mended: NaN is null, half an emoji U+FFFD. Raises
    `ValueError` or `RecursionError` for what is none.
    """
    try:
        return msgspec.json.decode(data), ()
    except UNREADABLE:
        return sound(json.loads(data if isinstance(data, str) else data.decode()))


def sound_event(event: Event) -> Event:
    """The event with sound texts and floats, flagged."""
    body, flags = sound(msgspec.to_builtins(event))
    body["flags"] = _with(body.get("flags", ()), set(flags))
    return msgspec.convert(body, type(event))


def parse_arguments(raw: str | dict[str, Any] | None) -> Arguments:
    """Tool-call arguments as providers send them. None, '' and 'null' mean no arguments: {}. JSON that
    is no object, or text that is no JSON (also a cut one), is kept as text and marked malformed.
    """
    if isinstance(raw, dict):
        return Arguments(sound(raw)[0], "", malformed=False)
    text = sound(raw)[0] if raw is not None else ""
    if not isinstance(text, str):
        return Arguments(None, json.dumps(text), malformed=True)
    if text.strip() in ("", "null"):
        return Arguments({}, "", malformed=False)
    try:
        value = msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return Arguments(None, text, malformed=True)
    if isinstance(value, dict):
        return Arguments(value, "", malformed=False)
    return Arguments(None, text, malformed=True)


def bound_text(text: str, limit: int = MAX_TEXT_BYTES) -> tuple[str, Truncated | None]:
    """A text of at most ``limit`` bytes of UTF-8: head, a mark, tail; with the original's length in
    bytes and its SHA-256. A text within the limit comes back as it is, with None.
    """
    if len(text) * 4 <= limit:
        return text, None
    data = text.encode()
    if len(data) <= limit:
        return text, None
    mark = f"\n…[{len(data)} bytes, cut]…\n".encode()
    room = max(limit - len(mark), 0)
    head, tail = data[: room - room // 2], data[len(data) - room // 2 :]
    kept = head.decode(errors="ignore") + mark.decode() + tail.decode(errors="ignore")
    return kept, Truncated(length=len(data), sha256=sha256(data).hexdigest())


def bounded(event: AnyEvent, max_text_bytes: int = MAX_TEXT_BYTES) -> AnyEvent:
    """The event with its long texts cut; ``truncated`` tells of the first that was."""
    changes: dict[str, Any] = {}
    for name in _LONG_TEXTS.get(type(event), ()):
        text, truncated = bound_text(getattr(event, name), max_text_bytes)
        if truncated is not None:
            changes[name] = text
            changes.setdefault("truncated", truncated)
    if not changes:
        return event
    if getattr(event, "truncated", None) is not None:
        del changes["truncated"]
    return msgspec.structs.replace(event, flags=_with(event.flags, {"truncated"}), **changes)


def repaired(line: bytes, max_event_bytes: int = MAX_EVENT_BYTES) -> AnyEvent:
    """The event of a line that the fast path refused. Raises `Undecodable` (no JSON, no event),
    `UnknownSchema` (newer schema, unknown kind) or `TooLarge`.
    """
    if len(line) > MAX_LINE_BYTES:
        raise TooLarge(f"a line of {len(line)} bytes; the most that is parsed is {MAX_LINE_BYTES}: cut it at the edge")
    cleaner = _Cleaner()
    body = _described(_parsed(line, cleaner))
    try:
        told = msgspec.convert(body.get("flags") or (), tuple[str, ...])
        event: AnyEvent = msgspec.convert(body | {"flags": _with(told, cleaner.flags)}, AnyEvent, strict=False)
    except msgspec.ValidationError as error:
        raise Undecodable(f"{body['kind']}: {error}; see docs/events.md for its fields") from None
    if len(line) <= max_event_bytes:
        return event
    event = bounded(event)
    size = len(msgspec.json.encode(event))
    if size > max_event_bytes:
        raise TooLarge(f"{body['kind']} of {size} bytes after its texts were cut; the limit is {max_event_bytes}")
    return event


def _with(flags: tuple[str, ...], more: set[str]) -> tuple[str, ...]:
    return (*flags, *sorted(more - set(flags)))


def _parsed(line: bytes, cleaner: _Cleaner) -> dict[str, Any]:
    try:
        text = line.decode("utf-8", "surrogatepass")
        value = json.loads(text, parse_constant=cleaner.constant, parse_float=cleaner.number)
        value = cleaner.clean(value)
    except UnicodeDecodeError as error:
        raise Undecodable(f"not UTF-8 at byte {error.start}: events are JSON in UTF-8, one a line") from None
    except RecursionError:
        raise Undecodable("JSON nested too deeply: flatten it at the edge") from None
    except ValueError as error:
        raise Undecodable(f"not JSON: {error}; events are JSON objects, one a line") from None
    if not isinstance(value, dict):
        raise Undecodable(f"JSON of type {type(value).__name__}, not an object: an event is an object with a kind")
    return value


def _described(body: dict[str, Any]) -> dict[str, Any]:
    """The body in this version's schema, nulls dropped where they mean the default."""
    if not isinstance(body.get("kind"), str):
        raise Undecodable(f"no kind: an event names one of {', '.join(EVENT_KINDS)}")
    schema = _schema(body.get("schema"))
    if schema > SCHEMA:
        raise UnknownSchema(
            f"schema {schema} of {body['kind']} is newer than {SCHEMA}: upgrade millstream, then replay"
        )
    body = upcast(body, schema)
    if body["kind"] not in EVENT_KINDS:
        raise UnknownSchema(f"unknown kind {body['kind']!r}; this version knows {', '.join(EVENT_KINDS)}")
    return _mended(body)


def _schema(value: Any) -> int:
    """The schema number; missing means 1. '2.0' is 2: what follows the point is a minor change."""
    if value is None:
        return 1
    try:
        return int(str(value).partition(".")[0])
    except ValueError:
        raise UnknownSchema(f"schema {value!r} is no number") from None


def _mended(body: dict[str, Any]) -> dict[str, Any]:
    body = _without_nulls(body)
    for name in ("task", "usage", "interface", "link", "truncated"):
        if isinstance(body.get(name), dict):
            body[name] = _without_nulls(body[name])
    for name in ("logprobs", "token_ids", "prompt_token_ids"):
        if isinstance(body.get(name), list) and None in body[name]:
            del body[name]
    if isinstance(body.get("tool_calls"), list):
        body["tool_calls"] = [_mended_call(call) for call in body["tool_calls"]]
    return body


def _mended_call(call: Any) -> Any:
    if not isinstance(call, dict):
        return call
    call = _without_nulls(call)
    if "arguments" in call and not isinstance(call["arguments"], dict):
        arguments, raw, malformed = parse_arguments(call["arguments"])
        call |= {"arguments": arguments, "arguments_raw": raw, "malformed": malformed}
    return call


def _without_nulls(table: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in table.items() if value is not None}
