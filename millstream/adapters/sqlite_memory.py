"""What judges remember, in a SQLite file of its own: verdicts by input hash, and each day's spending.

It can be deleted at any time: verdicts are asked for again, and the day's budget begins anew.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from millstream.errors import Unavailable

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS verdicts (key TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS spending (day TEXT PRIMARY KEY, cost REAL NOT NULL) STRICT, WITHOUT ROWID;
"""
PRUNE_EVERY: Final = 256
"""How many verdicts may be kept over the bound before the oldest leave."""


class SqliteMemory:
    """A file, shared by the processes of a data directory. ``entries``: the most verdicts kept (0: none)."""

    def __init__(self, file: Path, *, entries: int = 100_000) -> None:
        self._file, self._entries, self._kept = file, entries, 0
        self._lock = threading.Lock()
        with self._errors():
            file.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(file, timeout=10, isolation_level=None, check_same_thread=False)
            self._connection.execute("PRAGMA journal_mode=WAL")
            self._connection.execute("PRAGMA synchronous=NORMAL")
            self._connection.executescript(_SCHEMA)

    def recall(self, key: str) -> bytes | None:
        """What was kept under a key."""
        if not self._entries:
            return None
        with self._errors(), self._lock:
            row = self._connection.execute("SELECT value FROM verdicts WHERE key = ?", (key,)).fetchone()
        return None if row is None else bytes(row[0])

    def keep(self, key: str, value: bytes) -> None:
        """Keep it; the oldest leave when there are too many."""
        if not self._entries:
            return
        with self._errors(), self._lock:
            self._connection.execute("INSERT OR REPLACE INTO verdicts (key, value) VALUES (?, ?)", (key, value))
            self._kept += 1
            if self._kept % PRUNE_EVERY == 0:
                newest = "SELECT max(rowid) FROM verdicts"
                self._connection.execute(f"DELETE FROM verdicts WHERE rowid <= ({newest}) - ?", (self._entries,))  # noqa: S608 — no text of a caller

    def spend(self, day: str, cost: float) -> None:
        """Add to a day's spending."""
        if cost <= 0:
            return
        add = "INSERT INTO spending VALUES (?, ?) ON CONFLICT (day) DO UPDATE SET cost = cost + excluded.cost"
        with self._errors(), self._lock:
            self._connection.execute(add, (day, cost))

    def spent(self, day: str) -> float:
        """A day's spending so far, by all processes."""
        with self._errors(), self._lock:
            row = self._connection.execute("SELECT cost FROM spending WHERE day = ?", (day,)).fetchone()
        return float(row[0]) if row else 0.0

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise Unavailable(f"{self._file}: {error}; it can be deleted: verdicts are asked for again") from None
