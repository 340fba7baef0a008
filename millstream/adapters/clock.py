"""Clocks: the only source of time of the embedded log."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Milliseconds since the epoch."""

    def now_ms(self) -> int:
        """The time now; it may go back, the log makes it monotone."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        """Wall time."""
        return time.time_ns() // 1_000_000


class ManualClock:
    """A clock that moves when told to, for tests and replays."""

    def __init__(self, ms: int = 1_700_000_000_000) -> None:
        self.ms = ms

    def now_ms(self) -> int:
        """The time it was set to."""
        return self.ms

    def advance(self, ms: int) -> None:
        """Move it by ``ms`` milliseconds (negative: back)."""
        self.ms += ms
