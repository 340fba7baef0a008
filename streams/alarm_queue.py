"""Runs in the order of their beginning.

A run is graded when it ends, so of a hundred that began together the short ones come first: compared in that
order, the first of every burst would look like drift. So a run is looked at ``hold_s`` after it began, and those
that began before it first. One that takes longer than that is looked at when it comes.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush

from msgspec import Struct, field

from millstream.grade import Grade
from millstream.streams.alarm_measures import Sample

KEPT = 5_000
"""With more than this in hand the hold is shorter: the oldest go first."""


class Held(Struct, frozen=True, array_like=True):
    """A graded run that waits: ``grades`` where the reward and gold may be compared, else None."""

    version: str
    sample: Sample
    grades: dict[str, Grade] | None


class Queue(Struct, kw_only=True):
    """What waits: a heap of (beginning, id), and the runs by id."""

    order: list[tuple[int, str]] = field(default_factory=list)
    held: dict[str, Held] = field(default_factory=dict)

    def add(self, began_ms: int, held: Held) -> None:
        """A run was graded."""
        self.held[held.sample.trajectory_id] = held
        heappush(self.order, (began_ms, held.sample.trajectory_id))

    def due(self, until_ms: int) -> Iterator[Held]:
        """The runs that began by then, oldest first."""
        while self.order and (self.order[0][0] <= until_ms or len(self.order) > KEPT):
            yield self.held.pop(heappop(self.order)[1])
