"""Names of messages: what is said again in the next request has the name that it had.

Every request tells the whole conversation again. A message is named by what it says, a turn of the model by the ids
of its calls, a result by the id of its call; what is said twice in one conversation is told apart by a number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from millstream import values
from millstream.codec import digest
from millstream.dialects.told import Message
from millstream.events import ToolCall

TOOL_ROLES = ("tool", "function")
_encode = msgspec.json.Encoder(order="sorted").encode


def calls_of(message: Message) -> tuple[ToolCall, ...]:
    """The calls of a turn."""
    asked = message.get("tool_calls")
    listed = list(asked) if isinstance(asked, list) else []
    if isinstance(message.get("function_call"), dict):
        listed.append({"function": message["function_call"]})
    return values.tool_calls(listed)


def text_of(message: Message) -> str:
    """What a message says, as one text."""
    return values.text_of(message.get("content") or message.get("refusal"))[0]


def name_of(message: Message) -> str:
    """The name of a message, the same wherever it is told."""
    role = values.word(message.get("role"))
    if role == "assistant":
        calls = calls_of(message)
        if calls and all(call.id for call in calls):
            return f"calls:{_joined(call.id for call in calls)}"
        shown = [(call.name, call.arguments, call.arguments_raw) for call in calls]
        return f"said:{digest('assistant', text_of(message).strip(), _encode(shown))}"
    if role in TOOL_ROLES:
        return f"call:{values.word(message.get('tool_call_id')) or digest('tool', _content(message))}"
    return f"said:{digest(role, values.word(message.get('name')), _content(message))}"


def chain(messages: Iterable[Message], before: str = "") -> Iterator[str]:
    """A hash for each message of it and all before it: equal where two conversations are equal so far."""
    for message in messages:
        result = values.word(message.get("role")) in TOOL_ROLES
        before = digest(before, name_of(message), _content(message) if result else b"")
        yield before


def _content(message: Message) -> bytes:
    """What a message says, to the pixel."""
    content = message.get("content")
    return content.strip().encode("utf-8", "replace") if isinstance(content, str) else _encode(values.plain(content))


def _joined(ids: Iterable[str]) -> str:
    joined = ",".join(ids)
    return joined if len(joined) <= 200 else digest(joined)
