"""Slow graders, asked about several runs side by side: a bounded window over the runs that come next.

A judge takes a second where a formula takes a microsecond. While the stage waits for the head of the window, the
judges of the runs behind it are asked already. Grades are taken one by one, in the order of the runs; the head waits
for its own grader alone, and no longer than that grader's deadline.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeAlias

from millstream.graders.registry import Grader, Told
from millstream.trajectory import Trajectory

Asked: TypeAlias = tuple[str, int, str, str]
"""A run's id, revision and content, and the grader."""


class Window:
    """The slow ones among some graders. Their functions may be called from many threads."""

    def __init__(self, graders: Sequence[Grader]) -> None:
        self._graders = [grader for grader in graders if grader.side_by_side > 1]
        self.width = max((grader.side_by_side for grader in self._graders), default=1)
        """How many runs are asked about at once; 1: no grader is slow."""
        self._under_way: OrderedDict[Asked, Future[tuple[Told, int]]] = OrderedDict()
        self._pool = ThreadPoolExecutor(self.width, "grader") if self._graders else None

    def begin(self, runs: Iterable[Trajectory]) -> None:
        """Ask about these, if they are not asked about already. At most twice the window is under way."""
        if self._pool is None:
            return
        for t in runs:
            for grader in self._graders:
                if _key(grader, t) not in self._under_way:
                    self._under_way[_key(grader, t)] = self._pool.submit(told_in, grader, t)
        while len(self._under_way) > 2 * self.width * len(self._graders):
            self._under_way.popitem(last=False)[1].cancel()

    def told(self, grader: Grader, t: Trajectory) -> tuple[Told, int]:
        """What a grader says of a run, and the nanoseconds it took: what was begun is waited for."""
        begun = self._under_way.pop(_key(grader, t), None) if grader.side_by_side > 1 else None
        return told_in(grader, t) if begun is None else begun.result()

    def close(self) -> None:
        """Begin nothing more; what is under way is not waited for."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)


def told_in(grader: Grader, t: Trajectory) -> tuple[Told, int]:
    """What a grader says of a run, and the nanoseconds it took."""
    begun = time.perf_counter_ns()
    told = grader.told(t)
    return told, time.perf_counter_ns() - begun


def _key(grader: Grader, t: Trajectory) -> Asked:
    return t.id, t.revision, t.content_hash, grader.name
