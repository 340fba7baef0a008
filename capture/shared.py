"""What all edges of a process have in common."""

from __future__ import annotations

import threading
from collections import Counter

from millstream.capture.blobs import Blobs
from millstream.capture.finders import Finders
from millstream.metrics import REDACTED, Meter


class Tally:
    """How many values were taken out, by kind, also told to a ``meter``. Safe to share between threads."""

    def __init__(self) -> None:
        self.meter: Meter | None = None
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def add(self, kind: str) -> None:
        """One more of a kind."""
        with self._lock:
            self._counts[kind] += 1
        if self.meter is not None:
            self.meter.add(REDACTED, (kind,))

    @property
    def counts(self) -> dict[str, int]:
        """The counts as they are now, the most frequent kind first."""
        with self._lock:
            return dict(self._counts.most_common())


class Shared:
    """``tally``: what was taken out at all doors of this process. ``blobs``: where what is too large is kept whole,
    None: nowhere. ``finders``: the operator's own redactors.
    """

    def __init__(self, blobs: Blobs | None = None, finders: Finders | None = None) -> None:
        self.tally = Tally()
        self.blobs = blobs
        self.finders = finders

    def checked(self) -> Shared:
        """The same, once the redactors are loaded. Raises `SettingsError` when they can't be."""
        if self.finders:
            self.finders.checked()
        return self

    def renewed(self) -> Shared:
        """The same for the child of a fork: nothing of it is held by a thread that is not there."""
        return Shared(self.blobs, self.finders.renewed() if self.finders else None)

    def keep(self, data: bytes) -> str:
        """The name of a blob of these bytes; '' where none is kept."""
        return self.blobs.put(data) if self.blobs else ""
