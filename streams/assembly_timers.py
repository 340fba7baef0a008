"""Timers of assembly: a lazy heap. A run has one entry, which may be too early but never too late; the
true deadline is asked for when the entry comes up, so that an event costs no heap operation.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heappop, heappush, heapreplace

from millstream.streams.assembly_run import Run, Timers


class Timetable:
    """The runs that are sealed (or, with ``sealed`` False, that are not), by deadline and then id."""

    def __init__(self, timers: Timers, runs: Mapping[str, Run], *, sealed: bool) -> None:
        self._timers = timers
        self._runs = runs
        self._sealed = sealed
        self._first = min(timers.idle, timers.max_age)
        self._heap: list[tuple[int, str]] = []

    def start(self, trajectory_id: str, run: Run) -> None:
        """Set the timer of a run that just began."""
        run.scheduled = run.first_ms + self._first
        heappush(self._heap, (run.scheduled, trajectory_id))

    def arm(self, trajectory_id: str, run: Run, *, anew: bool = False) -> None:
        """Set a run's timer, or make it ring sooner. ``anew``: it has none in this timetable."""
        deadline = self._timers.deadline(run)
        if anew or deadline < run.scheduled:
            run.scheduled = deadline
            heappush(self._heap, (deadline, trajectory_id))

    def next(self, now: int | None = None) -> tuple[int, str, Run] | None:
        """The run that is due first, with its deadline; with ``now`` only one whose deadline has come."""
        heap = self._heap
        while heap:
            due, trajectory_id = heap[0]
            if now is not None and due > now:
                return None
            run = self._runs.get(trajectory_id)
            if run is None or run.scheduled != due or bool(run.reason) is not self._sealed:
                heappop(heap)
                continue
            deadline = self._timers.deadline(run)
            if deadline == due:
                return due, trajectory_id, run
            run.scheduled = deadline
            heapreplace(heap, (deadline, trajectory_id))
        return None
