"""The order of a trajectory's events, decided when it is sealed: links and calls first, seq within a
producer, clocks last.

Kahn's algorithm over the causal edges. Among events that nothing holds back any more the start goes
first, the end last, and in between the told time decides, but for a tool result: it follows its call
at once, whatever the clock of the tool's host says. Contradicting edges end: the event that comes
first by the same rule is taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import TypeAlias

from millstream.dialects.reading import Place
from millstream.events import TrajectoryEnded, TrajectoryStarted
from millstream.streams.assembly_links import NOWHERE, ancestors, root_key
from millstream.streams.assembly_node import Node, answers, asks

Edge: TypeAlias = tuple[int, int]
Rank: TypeAlias = tuple[int, int, int, int, str, int, str, str]
_PHASE = {TrajectoryStarted: 0, TrajectoryEnded: 2}


def ordered(nodes: Iterable[Node], hung: Mapping[str, Place] = NOWHERE) -> list[Node]:
    """All events, in order; independent of the order given. ``hung``: where spans without events hang."""
    listed = sorted(nodes, key=_clock)
    askers = _askers(listed)
    after = [set[int]() for _ in listed]
    for edges in (_seq_edges(listed), _link_edges(listed, hung), [(asker, result) for result, asker in askers.items()]):
        for first, then in edges:
            after[first].add(then)
    ranks = [_rank(listed, askers, index) for index in range(len(listed))]
    return [listed[index] for index in _kahn(after, ranks)]


def _clock(node: Node) -> tuple[int, str, int, str, str]:
    event = node.event
    return event.time_ns, event.producer, node.seq, event.link.key if event.link else "", event.id


def _kahn(after: Sequence[set[int]], ranks: Sequence[Rank]) -> list[int]:
    waits = [0] * len(ranks)
    for targets in after:
        for target in targets:
            waits[target] += 1
    heap = [(ranks[index], index) for index, count in enumerate(waits) if count == 0]
    heapify(heap)
    result: list[int] = []
    taken = [False] * len(ranks)
    for first in sorted((rank, index) for index, rank in enumerate(ranks)):
        heap = heap or [first]
        while heap:
            _, index = heappop(heap)
            if taken[index]:
                continue
            taken[index] = True
            result.append(index)
            for target in after[index]:
                waits[target] -= 1
                if waits[target] == 0:
                    heappush(heap, (ranks[target], target))
    return result


def _rank(nodes: Sequence[Node], askers: dict[int, int], index: int) -> Rank:
    asker = askers.get(index)
    time_ns, producer, seq, key, event_id = _clock(nodes[index])
    anchor, free = (time_ns, 1) if asker is None else (nodes[asker].event.time_ns, 0)
    return _PHASE.get(type(nodes[index].event), 1), anchor, free, time_ns, producer, seq, key, event_id


def _askers(nodes: Sequence[Node]) -> dict[int, int]:
    """For each tool result that no seq ties to its call: the response that asked (the n-th call of an
    id belongs to its n-th result).
    """
    asked: dict[str, list[int]] = {}
    answered: dict[str, list[int]] = {}
    for index, node in enumerate(nodes):
        for calls, found in ((asks(node.event), asked), (answers(node.event), answered)):
            for call in calls:
                found.setdefault(call, []).append(index)
    pairs = {}
    for call in asked.keys() & answered.keys() - {""}:
        for nth, result in enumerate(answered[call]):
            asker = asked[call][min(nth, len(asked[call]) - 1)]
            one, other = nodes[asker].event, nodes[result].event
            if one.link or other.link or one.producer != other.producer:
                pairs[result] = asker
    return pairs


def _seq_edges(nodes: Sequence[Node]) -> list[Edge]:
    chains: dict[str, list[int]] = {}
    for index, node in enumerate(nodes):
        if node.link is None:
            chains.setdefault(node.event.producer, []).append(index)
    edges: list[Edge] = []
    for chain in chains.values():
        chain.sort(key=lambda index: nodes[index].seq)
        edges += pairwise(chain)
    return edges


def _link_edges(nodes: Sequence[Node], hung: Mapping[str, Place]) -> list[Edge]:
    """From parent and predecessor; what has no parent hangs under the root."""
    linked = [(index, node.link) for index, node in enumerate(nodes) if node.link is not None]
    at = {link.alias: index for index, link in linked if link.alias} | {link.key: index for index, link in linked}
    root = root_key(node.link for node in nodes if node.link is not None)
    edges: list[Edge] = []
    for index, node in enumerate(nodes):
        if node.link is not None:
            above = "" if node.link.root else node.link.parent or root
            parent = next((key for key in (above, *ancestors(above, hung)) if key in at), "")
            edges += [(at[key], index) for key in (parent, node.link.after) if key in at and at[key] != index]
    return edges
