"""The observations of a Langfuse trace as a tree, and the model calls in it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from millstream import values
from millstream.dialects.messages import decoded, input_messages, output_messages, tool_definitions

_AGENT = re.compile(r"^(?:invoke_agent |agent_run )?\[?(.*?)\]?$", re.DOTALL)


class Span(Struct, frozen=True):
    """An observation."""

    id: str
    parent: str
    kind: str
    name: str
    start: str
    failure: str
    fields: dict[str, Any]

    def order(self) -> tuple[str, str]:
        """By start, then by id, so that the order of the file does not matter."""
        return self.start, self.id


class Call(Struct, frozen=True):
    """A model call: what it was given and what it gave."""

    span: Span
    given: list[dict[str, Any]]
    gave: list[dict[str, Any]]
    agent: str = ""
    model: str = ""
    tools: tuple[dict[str, Any], ...] = ()


def spans(observations: Iterable[dict[str, Any]]) -> dict[str, Span]:
    """Observations by id; of several with one id the last of the file stands."""
    return {span.id: span for span in map(_span, observations)}


def _span(told: dict[str, Any]) -> Span:
    failed = told.get("level") == "ERROR"
    return Span(
        id=values.word(told["id"]),
        parent=values.word(told.get("parentObservationId")),
        kind=values.word(told.get("type")).upper(),
        name=values.word(told.get("name")),
        start=values.word(told.get("startTime")),
        failure=(values.word(told.get("statusMessage")) or "failed") if failed else "",
        fields=told,
    )


def ancestors(span: Span, found: dict[str, Span]) -> Iterator[Span]:
    """The parents of a span, nearest first; a cycle ends."""
    seen = {span.id}
    while span.parent in found and span.parent not in seen:
        seen.add(span.parent)
        span = found[span.parent]
        yield span


def calls(found: dict[str, Span]) -> list[Call]:
    """The model calls in their order, one for each nest of generations that tells any message."""
    nests: dict[str, list[Span]] = {}
    for span in found.values():
        if span.kind == "GENERATION":
            above = [parent.id for parent in ancestors(span, found) if parent.kind == "GENERATION"]
            nests.setdefault(above[-1] if above else span.id, []).append(span)
    made = []
    for nest in nests.values():
        nest.sort(key=Span.order)
        made += [call for call in _told(nest, found) if call.given or call.gave]
    made.sort(key=lambda call: call.span.order())
    return [*made[:-1], _with_answer(made[-1], found)] if made and not made[-1].gave else made


def _with_answer(call: Call, found: dict[str, Span]) -> Call:
    """The last call with the answer that a later observation tells, when its own does not."""
    for span in sorted(found.values(), key=Span.order):
        told = decoded(span.fields.get("output"))
        if span.order() > call.span.order() and isinstance(told, dict) and told.get("role") == "assistant":
            return replace(call, gave=output_messages(told))
    return call


def _told(nest: list[Span], found: dict[str, Span]) -> Iterator[Call]:
    outer = nest[0]
    given = [input_messages(span.fields.get("input")) for span in nest]
    gave = [output_messages(span.fields.get("output")) for span in nest]
    agents = (parent.name for parent in ancestors(outer, found) if parent.kind == "AGENT")
    model = next((values.word(span.fields["model"]) for span in nest if span.fields.get("model")), "")
    named = _AGENT.match(next(agents, ""))
    tools = tool_definitions(*(span.fields.get(side) for span in nest for side in ("input", "output")))
    yield Call(outer, max(given, key=_worth), max(gave, key=_worth), named[1] if named else "", model, tools)


def _worth(messages: list[dict[str, Any]]) -> tuple[int, int]:
    """How much messages tell: calls, then how many they are."""
    return sum(len(values.tool_calls(message.get("tool_calls"))) for message in messages), len(messages)
