"""What all edges of a process have in common."""

from __future__ import annotations

import threading
from collections import Counter


class Tally:
    """How many values were taken out, by kind. Safe to share between threads."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def add(self, kind: str) -> None:
        """One more of a kind."""
        with self._lock:
            self._counts[kind] += 1

    @property
    def counts(self) -> dict[str, int]:
        """The counts as they are now, the most frequent kind first."""
        with self._lock:
            return dict(self._counts.most_common())


class Shared:
    """``tally``: what was taken out at all doors of this process."""

    def __init__(self) -> None:
        self.tally = Tally()
