"""The embedded log and state: one SQLite file, no service.

Any number of processes open it, append and read; the stages are run by one of them, which holds
`millstream.adapters.lock.RunnerLock`.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from millstream.adapters.clock import Clock, SystemClock
from millstream.adapters.sqlite_file import SqliteFile
from millstream.adapters.sqlite_log import SqliteLog
from millstream.adapters.sqlite_store import SqliteStore


class Embedded(NamedTuple):
    """The two ports on one file; close it when done."""

    log: SqliteLog
    store: SqliteStore

    def close(self) -> None:
        """Close this process's connections."""
        self.log.file.close()


def open_sqlite(
    path: Path, *, clock: Clock | None = None, partitions: int = 1, busy_s: float = 10.0, max_pages: int = 0
) -> Embedded:
    """Open the file, made when it is new. ``partitions`` of topics made now (buffer-events and
    policy-events always have one); ``busy_s``: how long to wait for another writer; ``max_pages``
    bounds the file (0: no bound). Raises `Unavailable` with the mend, `SettingsError` for a newer
    format or a foreign file.
    """
    file = SqliteFile(path, busy_s=busy_s, max_pages=max_pages)
    log = SqliteLog(file, clock or SystemClock(), partitions)
    return Embedded(log, SqliteStore(log))
