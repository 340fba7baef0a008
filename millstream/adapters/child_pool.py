"""Several children of one module, shared by callers of different priority."""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Mapping

from millstream.adapters.children import Child


class ChildPool:
    """Some children of one module; a call takes whichever is free. Safe to call from many threads.

    Calls that wait are served by priority (lower first), then in the order in which they came.
    """

    def __init__(self, module: str, size: int, *, env: Mapping[str, str] | None = None) -> None:
        """``size`` children, started at their first call or by `warm`."""
        self.size = size
        self._children = [Child(module, env=env) for _ in range(size)]
        self._free = list(self._children)
        self._waiting: list[tuple[int, int]] = []
        self._tickets = itertools.count()
        self._turn = threading.Condition()

    def call(self, method: str, payload: bytes, timeout_s: float | None = None, *, priority: int = 0) -> bytes:
        """One call to a free child, waiting for one if need be. Raises as `Child.call` does."""
        child = self._take(priority)
        try:
            return child.call(method, payload, timeout_s)
        finally:
            with self._turn:
                self._free.append(child)
                self._turn.notify_all()

    def at(self, priority: int) -> PoolView:
        """The same pool for a caller of another priority."""
        return PoolView(self, priority)

    def _take(self, priority: int) -> Child:
        with self._turn:
            ticket = (priority, next(self._tickets))
            heapq.heappush(self._waiting, ticket)
            while not self._free or self._waiting[0] != ticket:
                self._turn.wait()
            heapq.heappop(self._waiting)
            child = self._free.pop()
            self._turn.notify_all()
            return child

    def warm(self) -> None:
        """Start every child now, so that they load while other things are done."""
        for child in self._children:
            child.start()

    def close(self) -> None:
        """End every child."""
        for child in self._children:
            child.close()


class PoolView:
    """A pool as a caller of one priority sees it."""

    def __init__(self, pool: ChildPool, priority: int) -> None:
        self._pool = pool
        self._priority = priority

    def call(self, method: str, payload: bytes, timeout_s: float | None = None) -> bytes:
        """One call; see `ChildPool.call`."""
        return self._pool.call(method, payload, timeout_s, priority=self._priority)
