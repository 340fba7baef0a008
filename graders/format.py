"""Format: the share of the policy's actions that are well formed.

An action is ill formed when a call's arguments are no JSON object, when it calls a tool that the run does not
offer, leaves out a required argument or gives one that the tool's schema does not know, or when it is
empty. A policy that can only speak by calling (the run offers tools, and a text is answered with an error
rather than a message) should be recorded with such a text as a malformed call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec

from millstream.events import ModelResponded, ToolCall
from millstream.grade import Grade, abstain, score, step
from millstream.trajectory import Trajectory

VERSION: Final = 2


class Tool(NamedTuple):
    """What a tool's schema says of its arguments. ``known`` is None where any name may be given."""

    required: frozenset[str]
    known: frozenset[str] | None


def format_validity() -> Callable[[Trajectory], Grade]:
    """The grader ``format``: well-formed actions / actions. Abstains where no content was recorded."""

    def grade(t: Trajectory) -> Grade:
        responses = t.responses
        if not responses:
            return score(0.0, label="no_action", reason="the policy never acted")
        if not any(map(recorded, responses)):
            return abstain("the content of the policy's actions was not recorded")
        tools = tools_of(t)
        steps = [step(i, fault, 0.0) for i, r in enumerate(responses, 1) if (fault := fault_of(r, tools))]
        faults = Counter(one.label for one in steps)
        good = len(responses) - faults.total()
        told = ", ".join(f"{n} {fault}" for fault, n in sorted(faults.items()))
        reason = f"{good} of {len(responses)} well formed" + (f"; {told}" if told else "")
        return score(good / len(responses), reason=reason, steps=steps)

    return grade


def recorded(response: ModelResponded) -> bool:
    """Whether an action came with any content."""
    return bool(response.text or response.tool_calls or response.reasoning) or response.token_ids is not None


def fault_of(response: ModelResponded, tools: Mapping[str, Tool]) -> str:
    """What is wrong with an action, or nothing."""
    if "malformed_call" in response.flags:
        return "malformed call"
    for call in response.tool_calls:
        if fault := _call_fault(call, tools):
            return fault
    return "" if response.text.strip() or response.tool_calls else "empty action"


def _call_fault(call: ToolCall, tools: Mapping[str, Tool]) -> str:
    if call.malformed or (call.arguments is None and call.arguments_raw.strip() not in ("", "null")):
        return "malformed call"
    if not tools:
        return ""
    tool = tools.get(call.name)
    if tool is None:
        return "unknown tool"
    given = call.arguments or {}
    if not tool.required <= given.keys():
        return "missing argument"
    return "" if tool.known is None or given.keys() <= tool.known else "unknown argument"


def tools_of(t: Trajectory) -> Mapping[str, Tool]:
    """The tools that the run offers, by name; empty where it does not say."""
    if t.started is None or not t.started.tools:
        return {}
    return _tools(msgspec.json.encode(t.started.tools))


@lru_cache(maxsize=256)
def _tools(encoded: bytes) -> Mapping[str, Tool]:
    described: list[Mapping[str, Any]] = msgspec.json.decode(encoded)
    return dict(_tool(item) for item in described)


def _tool(item: Mapping[str, Any]) -> tuple[str, Tool]:
    """A tool from its description: OpenAI's nested or flat form, or ``input_schema``."""
    inner = item.get("function")
    function: Mapping[str, Any] = inner if isinstance(inner, Mapping) else item
    schema = function.get("parameters") or function.get("input_schema") or {}
    schema = schema if isinstance(schema, Mapping) else {}
    properties = schema.get("properties")
    closed = isinstance(properties, Mapping) and schema.get("additionalProperties", False) is False
    known = frozenset(properties) if closed and isinstance(properties, Mapping) else None
    required = schema.get("required")
    names = frozenset(r for r in required if isinstance(r, str)) if isinstance(required, list) else frozenset()
    return str(function.get("name", "")), Tool(names, known)
