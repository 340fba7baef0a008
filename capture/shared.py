"""What all edges of a process have in common."""

from __future__ import annotations

import threading
from collections import Counter

from millstream.capture.blobs import Blobs


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
    """``tally``: what was taken out at all doors of this process. ``blobs``: where what is too large is kept whole,
    None: nowhere.
    """

    def __init__(self, blobs: Blobs | None = None) -> None:
        self.tally = Tally()
        self.blobs = blobs

    def keep(self, data: bytes) -> str:
        """The name of a blob of these bytes; '' where none is kept."""
        return self.blobs.put(data) if self.blobs else ""
