"""A stream that is mostly unusable: a stage stops itself rather than turn a whole topic into dead letters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from millstream.errors import Stuck
from millstream.ports import Output, Record
from millstream.topics import DEAD_LETTERS

FEWEST: Final = 100
"""No share is taken of fewer events."""


class DeadShare:
    """The share of dead letters among the last events, by windows of ``window`` events. ``most`` 1: no limit."""

    def __init__(self, most: float, window: int) -> None:
        self.most = most
        self.window = max(window, FEWEST)
        self._events = self._dead = 0

    def count(self, record: Record, outputs: Iterable[Output]) -> None:
        """A record was fed, and this came of it."""
        self._events += 1 if record.value is None else record.value.rstrip(b"\n").count(b"\n") + 1
        self._dead += sum(out.topic == DEAD_LETTERS.name for out in outputs)

    def check(self, stage: str) -> None:
        """After a commit. Raises `Stuck` when too many were dead."""
        if self._events < self.window:
            return
        events, dead = self._events, self._dead
        self._events = self._dead = 0
        if self.most < 1 and dead > self.most * events:
            raise Stuck(
                f"stage {stage!r} stops: {dead} of the last {events} events are dead letters, the limit is "
                f"{self.most:.0%} ([workers] max_dead_share); `millstream dead-letters list` says why, and what is "
                "mended can be replayed"
            )
