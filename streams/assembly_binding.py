"""Results of tools whose spans do not name the call: bound to a call by the tool's name, when a run is sealed.

The n-th such result of a tool belongs to the n-th call of it that nothing else answers. Where every call of the tool
is answered by what a later prompt tells, the span tells the same again and goes.
"""

from __future__ import annotations

from collections import defaultdict

import msgspec

from millstream.codec import encode
from millstream.events import ToolReturned
from millstream.streams.assembly_node import Node, asks

BOUND = "call_bound"


def unbound(event: object) -> bool:
    """Whether an event is the result of a tool's span without a call."""
    return type(event) is ToolReturned and not event.call_id and event.link is not None


def bind(nodes: list[Node]) -> list[Node]:
    """The nodes with their loose results bound; the same list when there is none."""
    loose = [node for node in nodes if unbound(node.event)]
    if not loose:
        return nodes
    waiting = _unanswered(nodes)
    known = set(waiting)
    made = {id(node): _bound(node, waiting, known) for node in sorted(loose, key=_moment)}
    return [kept for node in nodes if (kept := made.get(id(node), node)) is not None]


def _moment(node: Node) -> tuple[int, str]:
    link = node.link
    return node.event.time_ns, link.key if link is not None else ""


def _unanswered(nodes: list[Node]) -> dict[str, list[str]]:
    """Ids of the calls that no result names, by the name of the tool, in order of time; [] where all are answered."""
    answered = {node.event.call_id for node in nodes if type(node.event) is ToolReturned}
    found: dict[str, list[str]] = defaultdict(list)
    for node in sorted(nodes, key=_moment):
        if asks(node.event):
            for call in node.event.tool_calls:  # type: ignore[union-attr]
                waiting = found[call.name]
                if call.id not in answered and call.id not in waiting:
                    waiting.append(call.id)
    return dict(found)


def _bound(node: Node, waiting: dict[str, list[str]], known: set[str]) -> Node | None:
    """The node with its call; as it is when nothing calls its tool; None when all calls of it are answered."""
    event = node.event
    assert type(event) is ToolReturned
    if event.name not in known:
        return node
    if not waiting[event.name]:
        return None
    call_id = waiting[event.name].pop(0)
    event = msgspec.structs.replace(event, call_id=call_id, flags=(*event.flags, BOUND))
    return Node(event, encode(event))
