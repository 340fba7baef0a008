"""The links of a trajectory from a span dialect: what dangles, what goes round, where it hangs instead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Struct

from millstream.codec import encode
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


def mend_links(nodes: list[Node]) -> Linked:
    """Hang what dangles, points at itself or goes round under the root (the top when there is none).

    A parent or predecessor outside the trajectory is broken, but for a root's own parent: it may lie
    in another service. The events that were moved are flagged ``reparented``.
    """
    links = {node.link.key: node.link for node in nodes if node.link is not None}
    parents = {key: link.parent for key, link in links.items() if link.parent and not link.root}
    afters = {key: link.after for key, link in links.items() if link.after}
    cut_parents, lost_parents = _unsound(parents, links)
    cut_afters, lost_afters = _unsound(afters, links)
    if not (cut_parents or cut_afters):
        return Linked(nodes, ())
    root = root_key(links.values())
    mended = [_mended(node, root, cut_parents, cut_afters) for node in nodes]
    return Linked(mended, tuple(sorted(lost_parents | lost_afters)))


def _unsound(pointers: Mapping[str, str], known: Mapping[str, Link]) -> tuple[set[str], set[str]]:
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
