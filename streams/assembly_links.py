"""The links of a trajectory from a span dialect: what dangles, what goes round, where it hangs instead."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet

import msgspec
from msgspec import Struct

from millstream.codec import encode
from millstream.dialects.reading import Place
from millstream.events import Link
from millstream.streams.assembly_node import Node


class Linked(Struct, frozen=True):
    """Events whose links all lead somewhere, and the keys that were named but never came or went
    round in a circle (``broken``).
    """

    nodes: list[Node]
    broken: tuple[str, ...]


def root_key(links: Iterable[Link]) -> str:
    """The key of the root, '' when there is none; of several the smallest."""
    return min((link.key for link in links if link.root), default="")


NOWHERE: Mapping[str, Place] = {}


def ancestors(key: str, hung: Mapping[str, Place]) -> Iterator[str]:
    """The spans above a span, nearest first; a circle ends."""
    seen = {key}
    while (place := hung.get(key)) is not None and place.parent and place.parent not in seen:
        key = place.parent
        seen.add(key)
        yield key


def with_agents(nodes: list[Node], hung: Mapping[str, Place]) -> list[Node]:
    """The events with the name of the agent whose span is the nearest above them, where they tell none."""
    if not any(place.agent for place in hung.values()):
        return nodes
    return [_with_agent(node, hung) for node in nodes]


def _with_agent(node: Node, hung: Mapping[str, Place]) -> Node:
    link, event = node.link, node.event
    if link is None or event.agent or not link.parent:
        return node
    above = (hung[key].agent for key in (link.parent, *ancestors(link.parent, hung)) if key in hung)
    agent = next((name for name in above if name), "")
    if not agent:
        return node
    event = msgspec.structs.replace(event, agent=agent)
    return Node(event, encode(event))


def mend_links(nodes: list[Node], hung: Mapping[str, Place] = NOWHERE) -> Linked:
    """Hang what dangles, points at itself or goes round under the root (the top when there is none).

    A parent or predecessor outside the trajectory is broken, but for a root's own parent: it may lie
    in another service. The events that were moved are flagged ``reparented``. ``hung``: where spans hang,
    with events or without.
    """
    links = {node.link.key: node.link for node in nodes if node.link is not None}
    keys = {link.alias: key for key, link in links.items() if link.alias} | {key: key for key in links}
    parents = {key: link.parent for key, link in links.items() if link.parent and not link.root}
    parents |= {key: place.parent for key, place in hung.items() if place.parent and not place.root}
    afters = {key: keys.get(link.after, link.after) for key, link in links.items() if link.after}
    cut_parents, lost_parents = _unsound(parents, links.keys() | hung.keys())
    cut_afters, lost_afters = _unsound(afters, links.keys())
    if not (cut_parents or cut_afters or lost_parents):
        return Linked(nodes, ())
    root = root_key(links.values())
    mended = [_mended(node, root, cut_parents, cut_afters) for node in nodes]
    return Linked(mended, tuple(sorted(lost_parents | lost_afters)))


def _unsound(pointers: Mapping[str, str], known: AbstractSet[str]) -> tuple[set[str], set[str]]:
    """(keys whose pointer must be cut, names to report): pointers to nowhere, and one of each circle."""
    nowhere = {key for key, target in pointers.items() if target not in known}
    circles = _circles(pointers)
    return nowhere | circles, {pointers[key] for key in nowhere} | circles


def _circles(pointers: Mapping[str, str]) -> set[str]:
    """The smallest key of each circle; every walk ends, since no key is walked twice."""
    done: set[str] = set()
    smallest: set[str] = set()
    for start in sorted(pointers):
        path: dict[str, int] = {}
        key = start
        while key in pointers and key not in done and key not in path:
            path[key] = len(path)
            key = pointers[key]
        if key in path:
            smallest.add(min(list(path)[path[key] :]))
        done |= path.keys()
    return smallest


def _mended(node: Node, root: str, cut_parents: set[str], cut_afters: set[str]) -> Node:
    link = node.link
    if link is None or not (link.key in cut_parents or link.key in cut_afters):
        return node
    if link.key in cut_parents:
        link = msgspec.structs.replace(link, parent=root)
    if link.key in cut_afters:
        link = msgspec.structs.replace(link, after="")
    event = msgspec.structs.replace(node.event, link=link, flags=(*node.event.flags, "reparented"))
    return Node(event, encode(event))
