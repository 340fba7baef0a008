"""The one SQLite file of the embedded log: connections, transactions, and errors that say the mend.

One connection a thread; WAL, so readers never wait for the writer; ``synchronous=FULL``, so that what
was committed survives a power cut. Writers of one process take turns by a lock, those of several
processes by SQLite's own.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from millstream.adapters.sqlite_schema import CURRENT, PAGE_BYTES, Format, prepare, refuse_newer
from millstream.errors import PositionLost, SettingsError, Unavailable

CHECKPOINT_PAGES = 512
"""8 MiB of WAL, then its pages go home."""
JOURNAL_BYTES = 64 << 20
POLL_S = 0.005
"""How often a waiting reader looks whether another process committed."""

_MENDS = {
    sqlite3.SQLITE_FULL: "the disk is full: free some space, then go on; nothing committed was lost",
    sqlite3.SQLITE_IOERR: "reading or writing failed (disk full, file size limit or broken disk): free some space "
    "or mend the disk; nothing committed was lost",
    sqlite3.SQLITE_READONLY: "the file or its folder is read-only: make both writable",
    sqlite3.SQLITE_CANTOPEN: "it can't be opened: make its folder exist and writable, or choose another [storage] log",
    sqlite3.SQLITE_BUSY: "another process holds it locked: end that process (a backup or a database browser?)",
    sqlite3.SQLITE_LOCKED: "another connection holds it locked: end the process that reads it",
}


class SqliteFile:
    """A file and this process's connections to it. ``max_pages`` bounds the file (0: no bound);
    ``busy_s``: how long to wait for other writers before `Unavailable`.
    """

    def __init__(self, path: Path, *, busy_s: float = 10.0, max_pages: int = 0, form: Format = CURRENT) -> None:
        self.path = path
        self._name = str(path)
        self.busy_s = busy_s
        self.max_pages = max_pages
        self.form = form
        self._connections: dict[tuple[int, int], tuple[sqlite3.Connection, tuple[int, int]]] = {}
        self._writing = threading.RLock()
        self._news = threading.Condition()
        self._changes = 0
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Unavailable(
                f"{path.parent}: {error.strerror}; make it writable or choose another [storage] data"
            ) from None
        self.connection()

    def connection(self) -> sqlite3.Connection:
        """This thread's connection, opened when it is new."""
        held = self._connections.get((os.getpid(), threading.get_ident()))
        return held[0] if held else self._connect()

    def _current(self) -> sqlite3.Connection:
        """This thread's connection; another one when the file was replaced under it."""
        held = self._connections.get((os.getpid(), threading.get_ident()))
        if held and held[1] == self._identity():
            return held[0]
        return self._connect()

    def _connect(self) -> sqlite3.Connection:
        self.drop()
        with self.errors():
            opened = self._open()
        self._connections[os.getpid(), threading.get_ident()] = (opened, self._identity())
        return opened

    def _identity(self) -> tuple[int, int]:
        try:
            stat = os.stat(self._name)  # noqa: PTH116 — once a transaction: Path.stat is slower
        except OSError:
            return (0, 0)
        return stat.st_dev, stat.st_ino

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path, timeout=self.busy_s, isolation_level=None, check_same_thread=False, cached_statements=256
        )
        try:
            self._configure(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _configure(self, connection: sqlite3.Connection) -> None:
        deadline = time.monotonic() + self.busy_s
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        while True:  # the change to WAL does not wait for locks by itself
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                break
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(POLL_S)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        connection.execute(f"PRAGMA journal_size_limit = {JOURNAL_BYTES}")
        prepare(connection, self.path, self.form)
        if self.max_pages:
            connection.execute(f"PRAGMA max_page_count = {self.max_pages}")

    def drop(self) -> None:
        """Close this thread's connection; the next use opens another."""
        held = self._connections.pop((os.getpid(), threading.get_ident()), None)
        if held:
            held[0].close()

    def close(self) -> None:
        """Close every connection of this process."""
        own = [key for key in self._connections if key[0] == os.getpid()]
        for key in own:
            self._connections.pop(key)[0].close()

    @contextlib.contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """One durable transaction, all or nothing. Raises `Unavailable` with the mend."""
        with self._writing:
            connection = self._current()
            with self.errors(), _transaction(connection, "IMMEDIATE"):
                refuse_newer(connection, self.path, self.form)
                yield connection
        with self._news:
            self._changes += 1
            self._news.notify_all()

    @contextlib.contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """One consistent view, that of the thread's own `write` inside one; keep it short, the WAL
        can't shrink meanwhile.
        """
        connection = self.connection()
        if connection.in_transaction:
            yield connection
        else:
            connection = self._current()
            with self.errors(), _transaction(connection, "DEFERRED"):
                yield connection

    @contextlib.contextmanager
    def errors(self) -> Iterator[None]:
        """Turn what SQLite says into what the caller does next."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code in _MENDS:
                if code not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL):
                    self.drop()
                raise Unavailable(f"{self.path}: {error}; {_MENDS[code]}") from error
            if code == sqlite3.SQLITE_NOTADB:
                raise SettingsError(
                    f"{self.path} is no SQLite file; move it away or choose another [storage] log"
                ) from error
            if code == sqlite3.SQLITE_CORRUPT:
                raise PositionLost(f"{self.path} is damaged ({error}); restore it from a copy") from error
            raise

    def changes(self) -> tuple[int, int]:
        """Differs from an earlier answer in this thread once anybody, in any process, has committed."""
        with self.errors():
            version = self.connection().execute("PRAGMA data_version").fetchone()[0]
        return self._changes, int(version)

    def pause(self, seen: int, timeout_s: float) -> None:
        """Sleep `POLL_S` at most, less when this process commits (``seen``: the first of `changes`)."""
        with self._news:
            if self._changes == seen:
                self._news.wait(min(POLL_S, timeout_s))


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection, kind: str) -> Iterator[None]:
    connection.execute(f"BEGIN {kind}")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            with contextlib.suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
        raise
