"""Streams of the chat and the Responses API, put together: the same object that a call without a stream answers.

A stream that breaks off gives what came until then. Fragments of parallel calls go by their index, not by their order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from millstream import values
from millstream.dialects.sse import EventStream
from millstream.repair import parsed

_JOINED = ("content", "refusal", "reasoning_content", "reasoning")
_LISTED = ("token_ids", "prompt_token_ids")
_MOST_INDEX = 4096
_DELTAS = {
    "output_text",
    "refusal",
    "function_call_arguments",
    "mcp_call_arguments",
    "custom_tool_call_input",
    "reasoning_summary_text",
    "reasoning_text",
}
"""Events of Responses that tell a text bit by bit; audio and the like are not kept."""
_decode = msgspec.json.Decoder().decode


class Assembly(Protocol):
    """Puts the events of one stream together."""

    def take(self, told: Mapping[str, Any]) -> None:
        """One event of the stream."""

    def whole(self) -> dict[str, Any]:
        """What they make so far, as if it had not been streamed; {} when nothing came."""
        ...


class StreamReader:
    """Bytes of a stream into an `Assembly`. ``broken``: data that were no JSON object."""

    def __init__(self, assembly: Assembly) -> None:
        self.assembly = assembly
        self.events = self.broken = 0
        self.done = False
        self._stream = EventStream()

    def feed(self, chunk: bytes) -> None:
        """The next bytes, cut anywhere."""
        for data in self._stream.feed(chunk):
            self._take(data)

    def finish(self) -> dict[str, Any]:
        """No more bytes come: what the stream made."""
        for data in self._stream.rest():
            self._take(data)
        return self.assembly.whole()

    def _take(self, data: bytes) -> None:
        if data.startswith(b"[DONE]"):
            self.done = True
            return
        try:
            told, _ = parsed(data)
        except (ValueError, RecursionError):
            told = None
        if isinstance(told, dict):
            self.events += 1
            self.assembly.take(told)
        else:
            self.broken += 1


class ChatStream:
    """Chunks of ``/chat/completions`` into a completion."""

    def __init__(self) -> None:
        self._whole: dict[str, Any] = {}
        self._choices: dict[int, _Choice] = {}

    def take(self, told: Mapping[str, Any]) -> None:
        """One chunk. Its last usage and its last of everything else that is not null count."""
        for name, value in told.items():
            if name in _LISTED and isinstance(value, list):
                self._whole.setdefault(name, []).extend(value)
            elif name != "choices" and value is not None:
                self._whole[name] = value
        for choice in _objects(told.get("choices")):
            self._choices.setdefault(_index(choice, 0), _Choice()).take(choice)

    def whole(self) -> dict[str, Any]:
        """The completion: ``choices`` in the order of their index."""
        if not self._whole and not self._choices:
            return {}
        choices = [{"index": n, **self._choices[n].whole()} for n in sorted(self._choices)]
        return {**self._whole, "object": "chat.completion", "choices": choices}


class _Choice:
    def __init__(self) -> None:
        self._parts: dict[str, list[str]] = {}
        self._message: dict[str, Any] = {"role": "assistant", "content": None}
        self._calls: dict[int, dict[str, Any]] = {}
        self._rest: dict[str, Any] = {}
        self._logprobs: dict[str, list[Any]] = {}

    def take(self, choice: Mapping[str, Any]) -> None:
        """The fragment that a chunk tells of this choice."""
        for name, value in choice.items():
            if name == "logprobs":
                for kind, listed in values.mapping(value).items():
                    if isinstance(listed, list):
                        self._logprobs.setdefault(kind, []).extend(listed)
            elif name in _LISTED and isinstance(value, list):
                self._rest.setdefault(name, []).extend(value)
            elif name not in ("delta", "index") and value is not None:
                self._rest[name] = value
        delta = choice.get("delta")
        for name, value in (delta if isinstance(delta, dict) else {}).items():
            self._delta(name, value)

    def _delta(self, name: str, value: Any) -> None:
        if name in _JOINED and isinstance(value, str):
            self._parts.setdefault(name, []).append(value)
        elif name == "tool_calls":
            for call in _objects(value):
                _joined(self._calls.setdefault(self._place(call), {}), call)
        elif name == "function_call" and isinstance(value, dict):
            _joined(self._message.setdefault(name, {}), value)
        elif value is not None:
            self._message[name] = value

    def _place(self, call: Mapping[str, Any]) -> int:
        """Where a fragment belongs: by its index; without one by its id, else to the last call."""
        if isinstance(call.get("index"), int):
            return _index(call, 0)
        last = max(self._calls, default=-1)
        identity = call.get("id")
        known = next((n for n, one in self._calls.items() if one.get("id") == identity), None) if identity else last
        return last + 1 if known is None else max(known, 0)

    def whole(self) -> dict[str, Any]:
        """The choice of a completion."""
        message = {**self._message, **{name: "".join(parts) for name, parts in self._parts.items()}}
        if self._calls:
            message["tool_calls"] = [self._calls[n] for n in sorted(self._calls)]
        logprobs = {"logprobs": self._logprobs} if self._logprobs else {}
        return {"finish_reason": None, **self._rest, **logprobs, "message": message}


def _joined(call: dict[str, Any], fragment: Mapping[str, Any]) -> None:
    """Add a fragment to a call: arguments and names are joined, everything else is what was told first."""
    for name, value in fragment.items():
        before = call.get(name)
        if isinstance(value, dict):
            inner = call[name] = before if isinstance(before, dict) else {}
            _joined(inner, value)
        elif name in ("arguments", "input") and isinstance(value, str) and isinstance(before, str):
            call[name] = before + value
        elif before in (None, "") and value is not None and name != "index":
            call[name] = value


class ResponseStream:
    """Events of ``/responses`` into a response. What its last event says of the whole counts, where it says it."""

    def __init__(self) -> None:
        self._response: dict[str, Any] = {}
        self._items: dict[int, dict[str, Any]] = {}
        self._texts: dict[tuple[int, str, int], list[str]] = {}
        self._error: Any = None

    def take(self, told: Mapping[str, Any]) -> None:
        """One event."""
        kind = values.word(told.get("type"))
        place = _index(told, -1, "output_index")
        if isinstance(told.get("response"), dict):
            self._response = dict(told["response"])
        elif kind == "error":
            self._error = {name: told.get(name) for name in ("code", "message")}
        elif kind in ("response.output_item.added", "response.output_item.done") and isinstance(told.get("item"), dict):
            self._items[place] = dict(told["item"])
            if kind.endswith("done"):
                self._texts = {key: parts for key, parts in self._texts.items() if key[0] != place}
        elif _spoken(kind) in _DELTAS and isinstance(told.get("delta"), str):
            inner = _index(told, 0, "summary_index" if "summary" in kind else "content_index")
            self._texts.setdefault((place, kind, inner), []).append(told["delta"])

    def whole(self) -> dict[str, Any]:
        """The response."""
        if not self._response and not self._items and not self._texts and self._error is None:
            return {}
        whole = {"object": "response", "status": "incomplete", **self._response}
        if self._error is not None:
            whole |= {"status": "failed", "error": whole.get("error") or self._error}
        if not whole.get("output"):
            places = sorted({*self._items, *(key[0] for key in self._texts)})
            whole["output"] = [self._item(place) for place in places]
        return whole

    def _item(self, place: int) -> dict[str, Any]:
        item = dict(self._items.get(place, {}))
        for (where, kind, _), parts in sorted(self._texts.items()):
            if where == place:
                _with_text(item, kind, "".join(parts))
        return item


def _spoken(kind: str) -> str:
    return kind.removeprefix("response.").removesuffix(".delta") if kind.endswith(".delta") else ""


def _with_text(item: dict[str, Any], kind: str, text: str) -> None:
    """An item that never ended, with what the deltas of a kind told of it."""
    name = _spoken(kind)
    if name in ("function_call_arguments", "mcp_call_arguments"):
        item["arguments"] = text
    elif name == "custom_tool_call_input":
        item["input"] = text
    elif name in ("output_text", "refusal"):
        item.setdefault("type", "message")
        item.setdefault("role", "assistant")
        part = {"type": name, "text" if name == "output_text" else "refusal": text}
        item["content"] = [*(item.get("content") or ()), part]
    elif name in ("reasoning_summary_text", "reasoning_text"):
        item.setdefault("type", "reasoning")
        where = "summary" if name == "reasoning_summary_text" else "content"
        item[where] = [*(item.get(where) or ()), {"type": name, "text": text}]


def _objects(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _index(told: Mapping[str, Any], default: int, name: str = "index") -> int:
    value = told.get(name)
    return value if isinstance(value, int) and 0 <= value < _MOST_INDEX else default
