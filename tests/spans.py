"""Makers of spans, for tests: lines of a record of spans and the requests that carry them."""

from __future__ import annotations

import json
from typing import Any, TypeAlias

Messages: TypeAlias = list[Any] | None
TRACE = "5b8efff798038103d269b633813fc60c"
HEADERS = {"dialect": "otlp/spans", "schema": "1"}


def said(role: str, *parts: Any) -> dict[str, Any]:
    """A message of GenAI parts; a text stands for a text part."""
    made = [{"type": "text", "content": part} if isinstance(part, str) else part for part in parts]
    return {"role": role, "parts": made}


def call(name: str, identity: str = "c1", **arguments: Any) -> dict[str, Any]:
    """A part that calls a tool."""
    return {"type": "tool_call", "id": identity, "name": name, "arguments": arguments}


def result(identity: str, response: Any) -> dict[str, Any]:
    """A part that answers a call."""
    return {"type": "tool_call_response", "id": identity, "response": response}


def span(number: int, parent: int | None = None, *, at: float = 0, took: float = 1, **told: Any) -> dict[str, Any]:
    """A span; ``at`` and ``took`` in seconds. ``attributes`` may have double underscores for dots."""
    start = 1_754_000_000_000_000_000 + round(at * 1e9)
    named = told.pop("attributes", {})
    return {
        "traceId": told.pop("trace", TRACE),
        "spanId": f"{number:016x}",
        "parentSpanId": "" if parent is None else f"{parent:016x}",
        "name": told.pop("name", "a span"),
        "startTimeUnixNano": str(start),
        "endTimeUnixNano": str(start + round(took * 1e9)),
        "attributes": named,
        **told,
    }


def line(told: dict[str, Any], holds: str = "span", **resource: Any) -> bytes:
    """The line of a span in a record."""
    return json.dumps({"resource": {"service.name": "shop", **resource}, "scope": {}, holds: told}).encode()


def agent(number: int = 1, parent: int | None = None, name: str = "shopper", **told: Any) -> dict[str, Any]:
    """The span of an agent."""
    attributes = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": name}
    return span(number, parent, name=f"invoke_agent {name}", attributes=attributes, **{"took": 60, **told})


def chat(
    number: int, parent: int | None, given: list[Any] | None, gave: list[Any] | None, **told: Any
) -> dict[str, Any]:
    """The span of a call of a model; messages None: without content."""
    attributes: dict[str, Any] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.usage.output_tokens": 7,
        **told.pop("attributes", {}),
    }
    if given is not None:
        attributes["gen_ai.input.messages"] = json.dumps(given)
    if gave is not None:
        attributes["gen_ai.output.messages"] = json.dumps([{**one, "finish_reason": _finish(one)} for one in gave])
    return span(number, parent, name="chat m", attributes=attributes, **told)


def _finish(message: dict[str, Any]) -> str:
    """What the conventions have every output message say."""
    called = any(part["type"] == "tool_call" for part in message["parts"])
    return str(message.get("finish_reason") or ("tool_call" if called else "stop"))


def tool(number: int, parent: int | None, name: str, identity: str, output: Any = None, **told: Any) -> dict[str, Any]:
    """The span of a tool."""
    attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name, "gen_ai.tool.call.id": identity}
    if output is not None:
        attributes["gen_ai.tool.call.result"] = output
    return span(number, parent, name=f"execute_tool {name}", attributes=attributes, **told)


def a_run() -> list[dict[str, Any]]:
    """A run of an agent: it asks a tool, whose host's clock is behind, and answers."""
    user, asked = said("user", "What is 12 % of 250?"), said("assistant", call("calc", e="250*0.12"))
    answered = said("tool", result("c1", "30"))
    return [
        agent(1),
        chat(2, 1, [user], [asked], at=1),
        tool(3, 1, "calc", "c1", "30", at=-90),
        span(4, 3, name="HTTP GET", at=-90),
        chat(5, 1, [user, asked, answered], [said("assistant", "30")], at=4),
    ]
