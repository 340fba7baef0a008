"""How fast a judge is asked: so many at once, so many a minute. Safe for many threads."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

MINUTE_S: Final = 60.0


class Pace:
    """``at_once`` calls side by side; ``per_minute`` of them begin in a minute, evenly spread (0: no bound)."""

    def __init__(
        self,
        at_once: int,
        per_minute: int = 0,
        *,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._places = threading.BoundedSemaphore(at_once)
        self._gap_s = MINUTE_S / per_minute if per_minute else 0.0
        self._now, self._sleep = now, sleep
        self._lock = threading.Lock()
        self._next = 0.0

    @contextlib.contextmanager
    def turn(self, patience_s: float) -> Iterator[bool]:
        """Wait for a turn, at most so long; False when none came."""
        begun = self._now()
        if not self._places.acquire(timeout=max(0.0, patience_s)):
            yield False
            return
        try:
            yield self._begin(patience_s - (self._now() - begun))
        finally:
            self._places.release()

    def _begin(self, patience_s: float) -> bool:
        if not self._gap_s:
            return True
        with self._lock:
            now = self._now()
            due = max(now, self._next)
            if due - now > patience_s:
                return False
            self._next = due + self._gap_s
        if due > now:
            self._sleep(due - now)
        return True
