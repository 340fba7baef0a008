"""Patience: a worker whose log, registry or tracker is away waits, and the stages go on meanwhile."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Protocol

from millstream.errors import Conflict, Stuck, Unavailable

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0
logger = logging.getLogger(__name__)


class Worker(Protocol):
    """Something beside the stages that is stepped in turn and never waits."""

    @property
    def busy(self) -> bool:
        """Whether work of it goes on beside the loop."""
        ...

    def step(self) -> bool:
        """Go on as far as is possible now; whether anything happened. Raises `Unavailable` and `Conflict`:
        step again later.
        """
        ...


class Patient:
    """A worker that is stepped again later, after a longer pause each time, when it could not go on."""

    def __init__(self, worker: Worker, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock`` counts seconds."""
        self.worker = worker
        self.clock = clock
        self.trouble: Unavailable | Conflict | None = None
        """Why it waits, or None."""
        self._pause = FIRST_PAUSE_S
        self._retry_at = 0.0

    @property
    def busy(self) -> bool:
        """Whether work of it goes on beside the loop."""
        return self.worker.busy

    def step(self) -> bool:
        """Step the worker unless it waits; whether anything happened."""
        if self.trouble and self.clock() < self._retry_at:
            return False
        try:
            happened = self.worker.step()
        except Stuck:
            raise
        except (Unavailable, Conflict) as error:
            if not self.trouble:
                logger.warning("waiting: %s", error)
            self.trouble, self._retry_at = error, self.clock() + self._pause
            self._pause = min(2 * self._pause, LONGEST_PAUSE_S)
            return False
        if self.trouble:
            logger.warning("going on")
        self.trouble, self._pause = None, FIRST_PAUSE_S
        return happened
