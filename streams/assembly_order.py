"""The order of a trajectory's events, decided when it is sealed: links and calls first, seq within a
producer, clocks last.

Kahn's algorithm over the causal edges. Among events that nothing holds back any more the start goes
first, the end last, and in between the told time decides, but for a tool result: it follows its call
at once, whatever the clock of the tool's host says. Contradicting edges end: the event that comes
first by the same rule is taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from itertools import pairwise
from operator import attrgetter
from typing import TypeAlias

from millstream.streams.assembly_run import ENDED, RESPONSE, RESULT, STARTED, Entry

Rank: TypeAlias = tuple[int, int, int, int, str, int, str]
_by_seq = attrgetter("seq")
_by_clock = attrgetter("time_ns", "seq", "producer", "identity")


def ordered(entries: Iterable[Entry]) -> list[Entry]:
    """All entries, in order; independent of the order given."""
    listed = list(entries)
    producer = listed[0].producer
    if all(entry.link is None and entry.producer == producer for entry in listed):
        return sorted(listed, key=_by_seq)
    return _causal(sorted(listed, key=_by_clock))


def _causal(nodes: Sequence[Entry]) -> list[Entry]:
    askers = _askers(nodes)
    after = [set[int]() for _ in nodes]
    for edges in (_seq_edges(nodes), _link_edges(nodes), _call_edges(askers)):
        for first, then in edges:
            after[first].add(then)
    waits = [0] * len(nodes)
    for targets in after:
        for target in targets:
            waits[target] += 1
    ranks = [_rank(nodes, askers, index) for index in range(len(nodes))]
    return [nodes[index] for index in _kahn(after, waits, ranks)]


def _kahn(after: Sequence[set[int]], waits: list[int], ranks: Sequence[Rank]) -> list[int]:
    heap = [(ranks[index], index) for index, count in enumerate(waits) if count == 0]
    heapify(heap)
    held = sorted((rank, index) for index, rank in enumerate(ranks))
    result: list[int] = []
    taken = [False] * len(ranks)
    for item in held:
        heap = heap or [item]
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


def _rank(nodes: Sequence[Entry], askers: dict[int, int], index: int) -> Rank:
    node = nodes[index]
    phase = {STARTED: 0, ENDED: 2}.get(node.kind, 1)
    asker = askers.get(index)
    time_ns, nth = (node.time_ns, 1) if asker is None else (nodes[asker].time_ns, 0)
    key = node.link.key if node.link is not None else ""
    return phase, time_ns, nth, node.time_ns, node.producer, node.seq, key or node.identity


def _askers(nodes: Sequence[Entry]) -> dict[int, int]:
    """For each tool result that no seq ties to its call: the response that asked (the n-th call of an
    id belongs to its n-th result).
    """
    asked: dict[str, list[int]] = {}
    answered: dict[str, list[int]] = {}
    for index, node in enumerate(nodes):
        for call in node.calls:
            if call and node.kind in (RESPONSE, RESULT):
                (asked if node.kind == RESPONSE else answered).setdefault(call, []).append(index)
    pairs = {}
    for call, results in answered.items():
        for nth, result in enumerate(results):
            calls = asked.get(call, ())
            asker = calls[min(nth, len(calls) - 1)] if calls else result
            if asker != result and (nodes[asker].link or nodes[asker].producer != nodes[result].producer):
                pairs[result] = asker
    return pairs


def _call_edges(askers: dict[int, int]) -> list[tuple[int, int]]:
    """(response, result) for each result."""
    return [(asker, result) for result, asker in askers.items()]


def _seq_edges(nodes: Sequence[Entry]) -> list[tuple[int, int]]:
    chains: dict[str, list[int]] = {}
    for index, node in enumerate(nodes):
        if node.link is None:
            chains.setdefault(node.producer, []).append(index)
    edges = []
    for chain in chains.values():
        chain.sort(key=lambda index: nodes[index].seq)
        edges += list(pairwise(chain))
    return edges


def _link_edges(nodes: Sequence[Entry]) -> list[tuple[int, int]]:
    """From parent and predecessor; what has no parent hangs under the root."""
    at = {node.link.key: index for index, node in enumerate(nodes) if node.link is not None}
    root = min((node.link.key for node in nodes if node.link is not None and node.link.root), default="")
    edges = []
    for index, node in enumerate(nodes):
        if node.link is not None:
            parent = "" if node.link.key == root else node.link.parent or root
            edges += [(at[key], index) for key in (parent, node.link.after) if key in at and at[key] != index]
    return edges
