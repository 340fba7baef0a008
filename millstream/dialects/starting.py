"""The start and the end of a run, as its spans tell them.

Each span that knows something of the run tells its start; the earliest one that knows the question stands. The root
tells the end. ``millstream.*`` attributes, on the span or its resource, name what no convention has a word for:
``task_id``, ``split_key``, ``family``, ``reference``, ``lineage``, ``policy_version``, ``group``, ``attempt``,
``group_size``, ``propensity``, ``subject``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

from msgspec.structs import replace

from millstream import values
from millstream.codec import digest
from millstream.dialects.spans import Span
from millstream.dialects.told import Told, first, number, text
from millstream.events import (
    EventId,
    Interface,
    Link,
    Task,
    TaskId,
    TrajectoryEnded,
    TrajectoryId,
    TrajectoryStarted,
)
from millstream.tasks import split_for, task_id, tools_hash

Shares: TypeAlias = tuple[float, float, float]
START: Final = "start"
END: Final = "end"
_KNOWS_QUESTION: Final = 2**62


def started(span: Span, told: Told, shares: Shares) -> Iterator[TrajectoryStarted]:
    """This span's telling of the start."""
    if told.piecemeal and not told.given:
        return
    ours = _Ours(span)
    task = _task(span, told, ours)
    rank = (_KNOWS_QUESTION if task.question else 0) - span.start_ns
    yield TrajectoryStarted(
        **_envelope(span, START, rank, span.start_ns),
        subject=ours.text("subject") or text(span.attributes, "enduser.id", "user.id"),
        task=task,
        lineage=ours.text("lineage"),
        policy_version=ours.whole("policy_version"),
        interface=Interface(tools=tools_hash(told.tools)),
        split=split_for(task, shares),
        group=ours.text("group"),
        attempt=ours.whole("attempt") or 0,
        group_size=ours.whole("group_size") or 1,
        propensity=number(ours.value("propensity")),
        tools=told.tools,
        source=f"otlp:{text(span.resource, 'service.name')}",
    )


def ended(span: Span, told: Told) -> Iterator[TrajectoryEnded]:
    """The root's telling of the end. Its answer is what the root gave, where it tells that."""
    if not span.root:
        return
    said = [values.text_of(message.get("content"))[0] for message in told.gave if message.get("role") == "assistant"]
    answer = next((one for one in reversed(said) if one), None)
    yield TrajectoryEnded(
        **_envelope(span, END, span.end_ns, span.end_ns),
        reason="crash" if span.failed else "done",
        final_answer=answer or told.answer or None,
        error=span.error,
    )


class _Ours:
    """The attributes that begin with ``millstream.``."""

    def __init__(self, span: Span) -> None:
        self._found: Mapping[str, Any] = {**span.resource, **span.attributes}

    def value(self, name: str) -> Any:
        return first(self._found, f"millstream.{name}")

    def text(self, name: str) -> str:
        return values.word(self.value(name))

    def whole(self, name: str) -> int | None:
        found = number(self.value(name))
        return int(found) if found is not None and found == int(found) and abs(found) < 2**53 else None


def _envelope(span: Span, key: str, rank: int, time_ns: int) -> dict[str, Any]:
    return {
        "id": EventId(digest("otlp", span.trace_id, span.span_id, span.name if span.log else "", key, rank)),
        "trajectory_id": TrajectoryId(span.trace_id),
        "time_ns": time_ns,
        "link": Link(key=key, finality=rank),
    }


def _task(span: Span, told: Told, ours: _Ours) -> Task:
    opening = [(values.word(m.get("role")), values.text_of(m.get("content"))[0]) for m in _opening(told)]
    service = text(span.resource, "service.name")
    kept = {"trace_id": span.trace_id, "conversation": told.conversation, "service": service}
    reference = ours.value("reference")
    task = Task(
        id=TaskId(ours.text("task_id")),
        question=next((said for role, said in opening if role == "user"), ""),
        reference=reference if isinstance(reference, str | float | int) and not isinstance(reference, bool) else None,
        split_key=ours.text("split_key"),
        family=ours.text("family") or service or "otlp",
        metadata={name: value for name, value in kept.items() if value},
    )
    if task.id or not opening:
        return replace(task, id=task.id or TaskId(digest("task of a trace", span.trace_id)))
    return replace(task, id=task_id(opening, Interface(tools=tools_hash(told.tools))))


def _opening(told: Told) -> Iterator[dict[str, Any]]:
    """The messages up to the first of the user's."""
    for message in told.given:
        yield message
        if message.get("role") == "user":
            return
