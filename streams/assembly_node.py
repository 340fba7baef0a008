"""A line of a run, decoded again: what ordering and the verdict need of an event."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from millstream.codec import decode
from millstream.events import AnyEvent, Link, ModelResponded, ToolReturned


class Node(Struct, frozen=True):
    """One accepted event with its line."""

    event: AnyEvent
    raw: bytes

    @property
    def link(self) -> Link | None:
        """The event's link, if it comes from a span dialect."""
        return self.event.link

    @property
    def seq(self) -> int:
        """Its place in its producer's sequence; −1 for a linked event."""
        return -1 if self.event.seq is None or self.event.link is not None else self.event.seq


def nodes(lines: Iterable[bytes]) -> list[Node]:
    """The events of accepted lines."""
    return [Node(decode(raw), raw) for raw in lines]


def asks(event: AnyEvent) -> tuple[str, ...]:
    """The ids of the calls that a response asks for."""
    return tuple([call.id for call in event.tool_calls]) if type(event) is ModelResponded else ()


def answers(event: AnyEvent) -> tuple[str, ...]:
    """The id of the call that a result answers."""
    return (event.call_id,) if type(event) is ToolReturned else ()
