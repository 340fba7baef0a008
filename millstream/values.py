"""What agents hand us, turned into the plain values that events hold.

Agents call with whatever their provider's library gave them: texts, None, lists of parts, dicts or
objects. Each function here takes all of these and never keeps a reference to something mutable, so
that the agent may go on changing its lists.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from millstream.events import Interface, Task, TaskId, ToolCall, Usage
from millstream.media import text_of_part
from millstream.repair import parse_arguments

_USAGE_NAMES = {
    "input_tokens": ("input_tokens", "prompt_tokens"),
    "output_tokens": ("output_tokens", "completion_tokens"),
    "cached_tokens": ("cached_tokens", "cache_read_input_tokens"),
    "reasoning_tokens": ("reasoning_tokens",),
}
_BESIDE_INPUT = ("cache_read_input_tokens", "cache_creation_input_tokens")
_MOST_TOKENS = 2**53
_MOST_WHOLE = 2**63
_USAGE_DETAILS = ("prompt_tokens_details", "completion_tokens_details", "input_tokens_details", "output_tokens_details")


def plain(value: Any) -> Any:
    """A deep copy in JSON's types: NaN and infinities become null, foreign objects their ``str``."""
    try:
        return msgspec.json.decode(msgspec.json.encode(value, enc_hook=str))
    except (TypeError, ValueError, msgspec.MsgspecError, RecursionError):
        return _plain_by_hand(value, 64)


def _plain_by_hand(value: Any, depth: int) -> Any:
    if depth == 0:
        return str(type(value).__name__)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, Mapping):
        return {_text(key): _plain_by_hand(item, depth - 1) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain_by_hand(item, depth - 1) for item in value]
    return word(value)


def mapping(value: Any) -> dict[str, Any]:
    """A dict from a mapping, a pydantic model, a dataclass or struct; {} from anything else."""
    if isinstance(value, Mapping):
        return {str(key): item for key, item in value.items()}
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return mapping(dump())
    made = msgspec.to_builtins(value, enc_hook=lambda item: getattr(item, "__dict__", {})) if value is not None else {}
    return made if isinstance(made, dict) else {}


def text_of(content: Any) -> tuple[str, tuple[str, ...]]:
    """The text of a message's content and its flags.

    None is ''; a list of parts is its texts joined by line breaks, with what `millstream.media` writes where a
    part is no text (flag ``non_text_part``); other JSON is written as JSON.
    """
    if content is None:
        return "", ()
    if isinstance(content, str):
        return word(content), ()
    if not isinstance(content, list | tuple):
        return msgspec.json.encode(plain(content)).decode(), ()
    texts, flags = [], set()
    for part in content:
        fields = {"type": "text", "text": part} if isinstance(part, str) else mapping(part)
        held = fields.get("type") in ("blob", "image", "audio", "file", "document") and "text" not in fields
        names = () if held else ("text", "content", "refusal")
        text = next((fields[k] for k in names if isinstance(fields.get(k), str)), None)
        if text is None:
            flags.add("non_text_part")
        texts.append(text_of_part(fields) if text is None else text)
    return "\n".join(texts), tuple(flags)


def tool_call(value: Any) -> ToolCall:
    """A call from ours, from OpenAI's ``{id, function: {name, arguments}}`` or from ``{id, name, arguments}``."""
    if isinstance(value, ToolCall):
        return ToolCall(
            id=value.id,
            name=value.name,
            arguments=None if value.arguments is None else plain(value.arguments),
            arguments_raw=value.arguments_raw,
            malformed=value.malformed,
        )
    fields = mapping(value)
    function = mapping(fields.get("function")) or mapping(fields.get("custom")) or fields
    given = function.get("arguments", function.get("input"))
    arguments, raw, malformed = parse_arguments(given if given is None or isinstance(given, str) else plain(given))
    return ToolCall(
        id=word(fields.get("id")),
        name=word(function.get("name")),
        arguments=arguments,
        arguments_raw=raw,
        malformed=malformed,
    )


def tool_calls(values: Iterable[Any] | None) -> tuple[ToolCall, ...]:
    """Calls in the order given."""
    return tuple(tool_call(value) for value in values or ())


def word(value: Any) -> str:
    """A name or an id as text; '' for None. A text of a type of its own (a markup string) becomes a plain one."""
    return "" if value is None else _text(value)


def _text(value: Any) -> str:
    """The plain text of anything; of what can't say it, its type's name."""
    try:
        return str.__str__(value if isinstance(value, str) else str(value))
    except Exception:  # noqa: BLE001 — a foreign object may raise whatever it likes
        return type(value).__name__


def whole(value: Any) -> int | None:
    """A whole number that an event can hold (64 bits), or None: for what is none, or is larger."""
    try:
        found = int(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return found if -_MOST_WHOLE <= found < _MOST_WHOLE else None


def usage_of(value: Any) -> Usage:
    """Usage from ours, from OpenAI's names or from Anthropic's; missing or odd numbers are 0."""
    if value is None:
        return Usage()
    if isinstance(value, Usage):
        return value if math.isfinite(value.cost) else msgspec.structs.replace(value, cost=0.0)
    fields = mapping(value)
    for name in _USAGE_DETAILS:
        fields |= {key: item for key, item in mapping(fields.get(name)).items() if key not in fields}
    counts = {ours: _count(fields, names) for ours, names in _USAGE_NAMES.items()}
    if "prompt_tokens" not in fields:  # Anthropic tells what was read from and written to its cache beside the input
        counts["input_tokens"] += sum(_count(fields, (name,)) for name in _BESIDE_INPUT)
    cost = number(fields.get("cost"))
    return msgspec.convert({**counts, "cost": cost or 0.0}, Usage)


def _count(fields: Mapping[str, Any], names: tuple[str, ...]) -> int:
    count = next((int(n) for name in names if (n := number(fields.get(name))) is not None), 0)
    return count if abs(count) < _MOST_TOKENS else 0


def number(value: Any) -> float | None:
    """A finite float, or None: for NaN, infinities, bools, texts and everything else."""
    if value is None or isinstance(value, bool | str | bytes):
        return None
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def token_ids(values: Any) -> tuple[int, ...] | None:
    """Token ids from a list, an array or a tensor."""
    if values is None:
        return None
    listed = values.tolist() if hasattr(values, "tolist") else values
    ids = tuple(map(int, listed))
    if ids and not -_MOST_WHOLE <= min(ids) <= max(ids) < _MOST_WHOLE:
        raise ValueError("a token id of more than 64 bits")
    return ids


def log_probs(values: Any) -> tuple[float, ...] | None:
    """Log-probs from a list, an array or a tensor; they may be non-finite, see `usable_log_probs`."""
    if values is None:
        return None
    listed = values.tolist() if hasattr(values, "tolist") else values
    return tuple(map(float, listed))


def usable_log_probs(
    ids: tuple[int, ...] | None, found: tuple[float, ...] | None
) -> tuple[tuple[float, ...] | None, tuple[str, ...]]:
    """The log-probs, or None with a flag that says why no ratio can be made of them."""
    if found is None:
        return None, ()
    if not math.isfinite(sum(found)):
        return None, ("non_finite_logprobs",)
    if ids is not None and len(ids) != len(found):
        return None, ("logprobs_mismatch",)
    return found, ()


def task_of(value: Any) -> Task:
    """A task from ours, a question, or a mapping with the fields of `Task`."""
    if isinstance(value, Task):
        whole = msgspec.structs.replace(value, metadata=plain(value.metadata))
        return msgspec.convert(msgspec.to_builtins(whole), Task)
    if isinstance(value, str):
        return Task(question=value)
    fields = plain(mapping(value))
    known = {key: fields.pop(key) for key in Task.__struct_fields__ if key in fields}
    known["id"] = TaskId(word(known.get("id")))
    known["metadata"] = {**fields, **mapping(known.get("metadata"))}
    if not isinstance(known.get("reference"), str | float | int | None) or isinstance(known.get("reference"), bool):
        known["reference"] = msgspec.json.encode(known["reference"]).decode()
    return msgspec.convert(known, Task)


def interface_of(value: Any, tools: tuple[dict[str, Any], ...], digest: str) -> Interface:
    """An interface from ours or a mapping; ``digest`` stands for the tools where they are known but unhashed."""
    found = value if isinstance(value, Interface) else msgspec.convert(plain(mapping(value)), Interface)
    return msgspec.structs.replace(found, tools=digest) if tools and not found.tools else found
